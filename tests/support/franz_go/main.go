// What a Go program does with franz-go. It prints JSON, and ends with status 1 and the reason at the first error.
//
//	round BOOTSTRAP                  makes a topic, produces, consumes, reads by time; one line for each record
//	overview BOOTSTRAP               the brokers and the controller
//	create BOOTSTRAP TOPIC           is refused with nine replicas, then creates, grows and configures
//	describe-and-delete BOOTSTRAP TOPIC
//	produce BOOTSTRAP TOPIC          what standard input has: lines of keys and values, with a colon between them
//	consume BOOTSTRAP TOPIC COUNT    one line for each record
//	member BOOTSTRAP GROUP TOPIC     consumes in a group until SIGTERM; one line for each record and commit
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "franz-go-orders" // its own, because clients of other tests may still ask for theirs, which makes them

type consumed struct {
	Offset int64  `json:"offset"`
	Key    string `json:"key"`
	Value  string `json:"value"`
	Header string `json:"header"`
}

var codecs = []kgo.CompressionCodec{
	kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
}

var commands = map[string]func(context.Context, []string) error{
	"round":               func(ctx context.Context, words []string) error { return round(ctx, words[0]) },
	"overview":            func(ctx context.Context, words []string) error { return overview(ctx, words[0]) },
	"create":              func(ctx context.Context, words []string) error { return create(ctx, words[0], words[1]) },
	"describe-and-delete": func(ctx context.Context, words []string) error { return describeAndDelete(ctx, words[0], words[1]) },
	"produce":             func(ctx context.Context, words []string) error { return produceLines(ctx, words[0], words[1]) },
	"consume":             func(ctx context.Context, words []string) error { return consumeAll(ctx, words[0], words[1], words[2]) },
	"member":              func(ctx context.Context, words []string) error { return member(ctx, words[0], words[1], words[2]) },
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 180*time.Second)
	defer cancel()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(facts any) error {
	line, err := json.Marshal(facts)
	if err == nil {
		fmt.Println(string(line))
	}
	return err
}

func round(ctx context.Context, bootstrap string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for number, codec := range codecs {
		if err := produce(ctx, bootstrap, codec, number); err != nil {
			return fmt.Errorf("produce with codec %d: %w", number, err)
		}
	}
	if err := consume(ctx, bootstrap, 1, len(codecs)-1); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, 2500, topic)
	if err != nil {
		return fmt.Errorf("offsets by time: %w", err)
	}
	if offset, _ := listed.Lookup(topic, 0); offset.Offset != 3 {
		return fmt.Errorf("the record after 2500 ms is at 3, not at %d", offset.Offset)
	}
	return nil
}

// Each record comes a second after the one before, so that it can be found by its time.
func produce(ctx context.Context, bootstrap string, codec kgo.CompressionCodec, number int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer client.Close()
	record := &kgo.Record{
		Topic:     topic,
		Key:       []byte("key"),
		Value:     []byte(fmt.Sprintf("value %d %0200d", number, 0)),
		Headers:   []kgo.RecordHeader{{Key: "source", Value: []byte("franz-go")}},
		Timestamp: time.UnixMilli(int64(number) * 1000),
	}
	return client.ProduceSync(ctx, record).FirstErr()
}

func consume(ctx context.Context, bootstrap string, from int64, count int) error {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start))
	if err != nil {
		return err
	}
	defer client.Close()
	for count > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, one := range fetches.Errors() {
			return one.Err
		}
		for _, record := range fetches.Records() {
			if err := tell(consumed{
				record.Offset, string(record.Key), string(record.Value[:7]), string(record.Headers[0].Value),
			}); err != nil {
				return err
			}
			count--
		}
	}
	return nil
}
