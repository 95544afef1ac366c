package sandbox

import (
	"context"
	"io"
)

// follower hands the output of one command to the caller's writers. The sandbox is not
// trusted to keep to the limit.
type follower struct {
	writers [2]io.Writer
	left    [2]int
	failed  bool
	end     context.CancelCauseFunc // ends the command
}

// newFollower is nil for a command whose output is kept.
func newFollower(c Command, limit int, end context.CancelCauseFunc) *follower {
	if c.Stdout == nil && c.Stderr == nil {
		return nil
	}
	return &follower{writers: [2]io.Writer{c.Stdout, c.Stderr}, left: [2]int{limit, limit}, end: end}
}

func (f *follower) take(stream int, data []byte) {
	i := stream - 1
	if i < 0 || i >= len(f.writers) || f.writers[i] == nil || f.failed {
		return
	}
	data = data[:min(len(data), f.left[i])]
	f.left[i] -= len(data)
	if _, err := f.writers[i].Write(data); err != nil {
		f.failed = true
		f.end(err)
	}
}
