package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestPagesCostTheSame: a page of a run that is folded reads no more of the log where the
// run is ten times as long.
func TestPagesCostTheSame(t *testing.T) {
	d := newDesk(t)
	b := newBulk(t, d.log, "large")
	paths := []string{
		"/", "/plane", "/runs/large", "/runs/large?outcome=failed", "/runs/large?page=2&groups=2", "/runs/large/curves",
		"/runs/large?at=500", "/runs/large/groups/g000003",
		"/runs/large/rollouts/g000003-1", "/runs/large/rollouts/g000003-1?at=500",
		"/runs/large/rollouts/g000003-1/messages/1/tokens",
	}
	cost := func() (messages []uint64) {
		for range 2 { // the first time folds what is new
			messages = nil
			for _, path := range paths {
				before := d.log.Conn().Stats().InMsgs
				d.show(path)
				natstest.Eventually(t, "nothing follows the log any more", func() bool { return working() == 0 })
				messages = append(messages, d.log.Conn().Stats().InMsgs-before)
			}
		}
		return messages
	}
	b.groups(0, 20)
	short := cost()
	b.groups(20, 200)
	for i, long := range cost() {
		if long > short[i]+5 {
			t.Errorf("%s: %d messages of the log, and %d where it is short", paths[i], long, short[i])
		}
	}
}

// TestVisitsLeaveNothing: pages that were opened, followed and closed leave no goroutine, no
// subscription and no consumer.
func TestVisitsLeaveNothing(t *testing.T) {
	d := newDesk(t)
	b := newBulk(t, d.log, "large")
	b.groups(0, 4)
	server := httptest.NewServer(d.d)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	visit := func(n int) {
		path := fmt.Sprintf("/runs/large?at=%d", n%7*30+1)
		if n%3 == 0 {
			path = "/runs/large"
		}
		f := follow(t, server.URL, "large")
		answer, err := client.Get(server.URL + path)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		<-f.lines
		f.cancel()
		for range f.lines {
		}
	}
	visits := func(many int) {
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for n := range many {
					visit(worker*many + n)
				}
			})
		}
		all.Wait()
		natstest.Eventually(t, "all of them are over", func() bool { return working() == 0 })
	}
	consumers := func() int {
		stream, err := d.log.JetStream().Stream(t.Context(), events.RunStream("large"))
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Consumers
	}
	visits(2) // connections, caches and inboxes are made
	http.DefaultClient.CloseIdleConnections()
	goroutines, subscriptions, held := runtime.NumGoroutine(), d.log.Conn().NumSubscriptions(), consumers()
	visits(25)
	http.DefaultClient.CloseIdleConnections()
	natstest.Eventually(t, fmt.Sprintf("no goroutine, subscription or consumer more than %d, %d and %d is left",
		goroutines, subscriptions, held), func() bool {
		return runtime.NumGoroutine() <= goroutines+2 &&
			d.log.Conn().NumSubscriptions() <= subscriptions && consumers() <= held
	})
	if n := len(d.d.streams); n != 0 {
		t.Errorf("%d lines are counted as open", n)
	}
}
