package agent

import (
	"fmt"
	"io"
)

// floodFactor: a stream that wrote this many times what is kept of it is not read any further.
const floodFactor = 1024

// output keeps the first and the last half of a limit of what is written to it.
type output struct {
	limit int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
}

func (o *output) Write(data []byte) (int, error) {
	o.total += int64(len(data))
	written := len(data)
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

// dropped is how many bytes are not kept.
func (o *output) dropped() int64 { return o.total - int64(len(o.head)) - int64(len(o.tail)) }

// text is what is kept, with a line that says what is missing where it is missing.
func (o *output) text() []byte {
	text := append([]byte(nil), o.head...)
	if dropped := o.dropped(); dropped > 0 {
		text = fmt.Appendf(text, "\n[... %d bytes dropped ...]\n", dropped)
	}
	text = append(text, o.tail[o.next:]...)
	return append(text, o.tail[:o.next]...)
}

// drain reads until the end, or until the stream floods.
func (o *output) drain(r io.Reader) (flooded bool) {
	buffer := make([]byte, 32<<10)
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
