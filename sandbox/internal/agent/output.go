package agent

import (
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// floodFactor: a stream that wrote this many times what is kept of it is not read any further.
const floodFactor = 1024

// output keeps the first and the last half of a limit of what is written to it, or sends all
// of it on until the limit.
type output struct {
	limit int
	send  func(data []byte) // nil keeps
	sent  int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
}

func (o *output) Write(data []byte) (int, error) {
	o.total += int64(len(data))
	written := len(data)
	if o.send != nil {
		if room := min(o.limit-o.sent, len(data)); room > 0 {
			o.sent += room
			o.send(data[:room])
		}
		return written, nil
	}
	if room := o.limit/2 - len(o.head); room > 0 {
		taken := min(room, len(data))
		o.head = append(o.head, data[:taken]...)
		data = data[taken:]
	}
	size := o.limit - o.limit/2
	if len(data) > size {
		data = data[len(data)-size:]
	}
	if room := size - len(o.tail); room > 0 {
		taken := min(room, len(data))
		o.tail = append(o.tail, data[:taken]...)
		data = data[taken:]
	}
	for len(data) > 0 {
		n := copy(o.tail[o.next:], data)
		o.next = (o.next + n) % size
		data = data[n:]
	}
	return written, nil
}

// dropped is how many bytes are neither kept nor sent.
func (o *output) dropped() int64 {
	return o.total - int64(len(o.head)) - int64(len(o.tail)) - int64(o.sent)
}

// text is what is kept, with a line that says what is missing where it is missing.
func (o *output) text() []byte {
	if o.send != nil {
		return nil
	}
	text := append([]byte(nil), o.head...)
	if dropped := o.dropped(); dropped > 0 {
		text = fmt.Appendf(text, "\n[... %d bytes dropped ...]\n", dropped)
	}
	text = append(text, o.tail[o.next:]...)
	return append(text, o.tail[:o.next]...)
}

// drain reads until the end, or until the stream floods.
func (o *output) drain(r io.Reader) (flooded bool) {
	buffer := make([]byte, wire.MaxChunk)
	for {
		n, err := r.Read(buffer)
		_, _ = o.Write(buffer[:n])
		if err != nil {
			return false
		}
		if o.total > int64(o.limit)*floodFactor {
			return true
		}
	}
}
