package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// The memory of all requests that are read or under way, in bytes, and that of one: its text, and
// what becomes of it. A value in it costs perValue beside its text, which is there perByte times
// more: as the client's words, as the log's, and as the request to the server. What may be an image
// is there perPixels times more: read, and written anew.
const (
	requestsMemory = 384 << 20
	requestMemory  = 224 << 20
	perValue       = 64
	perByte        = 5
	perPixels      = 3
	// memoryWait is how long a request waits for memory before it is told to come again.
	memoryWait = 10 * time.Second
)

func newMemory() *memory.Budget {
	b := memory.New(requestsMemory, requestMemory)
	b.Wait = memoryWait
	return b
}

// body reads a request into memory of a share.
func body(w *stream, r *http.Request, share *memory.Share, most int64) ([]byte, error) {
	in := &timedBody{from: http.MaxBytesReader(w, r.Body, most), control: w.control, left: bodyTime}
	text, err := share.Read(r.Context(), in, 0, most)
	if err != nil {
		return nil, unread(err)
	}
	w.control.SetReadDeadline(time.Time{}) // from here on it would end the call
	return text, nil
}

// unread turns what is wrong with a request's body into an answer.
func unread(err error) error {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, "too_large",
			"the request is larger than %d bytes", large.Limit)
	case errors.Is(err, memory.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, "too_large",
			"the request takes more than %d MiB of memory: it has too many values or images for its size",
			requestMemory>>20)
	case errors.Is(err, memory.ErrSpent):
		return &refusal{status: http.StatusServiceUnavailable, code: "overloaded",
			message: "the memory for requests is spent: try again", after: time.Second}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, "timeout",
			"the request did not come in time: %s without a byte, or %s for all of it", idleTime, bodyTime)
	}
	return problem(http.StatusBadRequest, "invalid_request_error", "read the request: %v", err)
}

// decode reads a request that is there, when there is memory for what it becomes.
func decode(ctx context.Context, share *memory.Share, d dialects.Dialect, text []byte) (*ask, error) {
	if err := share.Grow(ctx, perByte*int64(len(text))+perValue*memory.Values(text)+
		perPixels*base64Bytes(text)); err != nil {
		return nil, unread(err)
	}
	read, err := d.Read(text)
	if err != nil {
		return nil, problem(http.StatusBadRequest, "invalid_request_error", "%v", err)
	}
	if read.Spelled != nil {
		text = read.Spelled
	}
	said := read.Said
	if read.Said = nil; said == nil { // it is as large as the text
		said, err = fields.Read(text)
	}
	a := &ask{Request: read, body: text, settings: fields.Settings(said)}
	if err == nil {
		a.requested, err = fields.Requested(a.settings)
	}
	if err != nil {
		return nil, problem(http.StatusBadRequest, "invalid_request_error", "%v", err)
	}
	if len(read.Withheld) > 0 {
		if a.requested == nil {
			a.requested = map[string]any{}
		}
		a.requested["withheld_tools"] = read.Withheld
	}
	return a, nil
}

// leastImage is the length in Base64 below which images cost nothing beside the rest.
const leastImage = 1 << 10

// base64Bytes counts those of a JSON text that may be images, however they are
// escaped, without reading it.
func base64Bytes(text []byte) (n int64) {
	run := int64(0)
	for _, b := range text {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '+', b == '/', b == '-',
			b == '_', b == '=', b == '\\':
			run++
			continue
		case run >= leastImage:
			n += run
		}
		run = 0
	}
	return n
}

// timedBody bounds the time between two pieces of a body, and that of all of them; the wait for
// memory between them is not the client's.
type timedBody struct {
	from    io.Reader
	control *http.ResponseController
	left    time.Duration
}

func (b *timedBody) Read(p []byte) (int, error) {
	began := time.Now()
	b.control.SetReadDeadline(began.Add(min(idleTime, b.left)))
	n, err := b.from.Read(p)
	b.left -= time.Since(began)
	return n, err
}
