package runtime

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
)

func TestWorkersGiveEachItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers()
		inWork := 0
		gate := make(chan struct{})
		failed := errors.New("failed")
		handle := w.middleware(func(m *message.Message) ([]*message.Message, error) {
			inWork++ // each waits here until all have come
			<-gate
			if m.UUID == "bad" {
				return nil, failed
			}
			return nil, nil
		})
		const n = 20
		results := make(chan error, n)
		for i := range n {
			go func() {
				id := "good"
				if i%2 == 1 {
					id = "bad"
				}
				_, err := handle(&message.Message{UUID: id})
				if (err != nil) != (id == "bad") {
					t.Errorf("a %s message ended with %v", id, err)
				}
				results <- err
			}()
			synctest.Wait()
		}
		if inWork != n {
			t.Errorf("%d messages are in work, want %d", inWork, n)
		}
		close(gate)
		for range n {
			<-results
		}
		w.end() // or synctest finds the workers waiting
	})
}

func TestWorkersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers()
		handle := w.middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
		for range 100 {
			if _, err := handle(&message.Message{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		gate := make(chan struct{})
		stay := job{handle: func(*message.Message) ([]*message.Message, error) { <-gate; return nil, nil }, result: make(chan error, 100)}
		idle := 0
		for taken := true; taken; synctest.Wait() {
			select {
			case w.jobs <- stay:
				idle++
			default:
				taken = false
			}
		}
		if idle != 1 {
			t.Errorf("%d workers for one message after the other, want 1", idle)
		}
		close(gate)
		w.end()
	})
}
