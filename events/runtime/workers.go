package runtime

import "github.com/ThreeDotsLabs/watermill/message"

// workers run handlers on goroutines that stay. Watermill's router starts a goroutine for each message, and to
// hand the message over costs less than to grow a new stack each time.
type workers struct {
	jobs chan job
	done chan struct{}
}

type job struct {
	handle message.HandlerFunc
	msg    *message.Message
	result chan error
}

func newWorkers() *workers {
	return &workers{jobs: make(chan job), done: make(chan struct{})}
}

// end ends the workers when they are idle.
func (w *workers) end() { close(w.done) }

// middleware hands messages to workers, of which there come to be as many as messages are in work at once. What
// follows it must not panic.
func (w *workers) middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		j := job{handle: next, msg: msg, result: make(chan error, 1)}
		select {
		case w.jobs <- j:
		default:
			go w.work(j)
		}
		return nil, <-j.result
	}
}

func (w *workers) work(j job) {
	for {
		_, err := j.handle(j.msg)
		j.result <- err
		select {
		case j = <-w.jobs:
		case <-w.done:
			return
		}
	}
}
