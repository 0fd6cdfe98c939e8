package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type seen struct {
	Addresses  []string `json:"addresses"`
	Controller int32    `json:"controller"`
}

func overview(ctx context.Context, bootstrap string) error {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer admin.Close()
	metadata, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	found := seen{Controller: metadata.Controller}
	for _, broker := range metadata.Brokers {
		found.Addresses = append(found.Addresses, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
	}
	return tell(found)
}

type refused struct {
	Refusal string `json:"refusal"`
}

func create(ctx context.Context, bootstrap string, topic string) error {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer admin.Close()
	answer, err := admin.CreateTopic(ctx, 6, 9, nil, topic)
	if err == nil {
		return errors.New("nine replicas were not refused")
	}
	refusal := refused{fmt.Sprintf("%v %s", err, answer.ErrMessage)}
	if _, err := admin.CreateTopic(ctx, 6, 3, nil, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	grown, err := admin.UpdatePartitions(ctx, 12, topic)
	if err = errors.Join(err, grown.Error()); err != nil {
		return fmt.Errorf("grow: %w", err)
	}
	value := "1234"
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
	if _, err := admin.AlterTopicConfigs(ctx, set, topic); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return tell(refusal)
}

type described struct {
	Leaders   []int32 `json:"leaders"`
	Retention string  `json:"retention_ms"`
}

func describeAndDelete(ctx context.Context, bootstrap string, topic string) error {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer admin.Close()
	var found described
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	for _, partition := range topics[topic].Partitions.Sorted() {
		found.Leaders = append(found.Leaders, partition.Leader)
	}
	resources, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return fmt.Errorf("describe configs: %w", err)
	}
	for _, config := range resources[0].Configs {
		if config.Key == "retention.ms" {
			found.Retention = config.MaybeValue()
		}
	}
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return tell(found)
}

func produceLines(ctx context.Context, bootstrap string, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(10*time.Millisecond), kgo.UnknownTopicRetries(-1), // asks for a topic that it creates until it is there
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

type keyed struct {
	Event     string `json:"event"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	At        int    `json:"at"`
}

func tellRecord(record *kgo.Record) error {
	return tell(keyed{"record", record.Partition, record.Offset, string(record.Key), string(record.Value), 0})
}

func consumeAll(ctx context.Context, bootstrap string, topic string, count string) error {
	left, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), start)
	if err != nil {
		return err
	}
	defer client.Close()
	for left > 0 {
		fetches := client.PollRecords(ctx, left)
		for _, one := range fetches.Errors() {
			return one.Err
		}
		for _, record := range fetches.Records() {
			if err := tellRecord(record); err != nil {
				return err
			}
			left--
		}
	}
	return nil
}

type happened struct {
	Event string `json:"event"`
	At    int    `json:"at"`
}

// Until SIGTERM; then it leaves the group.
func member(ctx context.Context, bootstrap string, group string, topic string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ClientID("franz-go"),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return tell(happened{"closed", 0})
		}
		for _, one := range fetches.Errors() {
			return one.Err
		}
		for _, record := range fetches.Records() {
			if err := tellRecord(record); err != nil {
				return err
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		if err := tell(happened{"committed", 0}); err != nil {
			return err
		}
	}
}
