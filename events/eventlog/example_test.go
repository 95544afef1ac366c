package eventlog_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/dir"
)

// A log over an embedded server: append an event, and read the last one of its chain.
func Example() {
	ctx := context.Background()
	path, err := os.MkdirTemp("", "rondo")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(path)
	server, err := embedded.Start(embedded.Options{Dir: filepath.Join(path, "nats"), SyncInterval: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Shutdown()
	connection, err := server.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	store, err := dir.Open(filepath.Join(path, "store"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	l, err := eventlog.New(connection, store)
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Streams.EnsureRun(ctx, "demo"); err != nil {
		log.Fatal(err)
	}

	opened, err := events.New("demo", events.GroupOpenedType, events.GroupID(1),
		"0", events.GroupOpened{Task: "fix", Size: 8})
	if err != nil {
		log.Fatal(err)
	}
	if _, _, err := l.Appender.Append(ctx, opened); err != nil {
		log.Fatal(err)
	}
	last, err := l.Last(ctx, "demo", "group", events.GroupID(1))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(last.Seq, last.Type, last.Entity)
	// Output:
	// 1 group.opened g000001
}
