package gateway

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/wording"
)

// refusal is an answer that is an error of HTTP.
type refusal struct {
	status  int
	code    string
	message string
	after   time.Duration // when to come again; 0 says nothing
}

func (r *refusal) Error() string { return r.message }

func (r *refusal) failure() dialects.Failure {
	return dialects.Failure{Status: r.status, Code: r.code, Message: r.message}
}

func problem(status int, code, format string, args ...any) error {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, wording.Args(args)...)}
}

// later refuses somebody who may come again.
func later(after time.Duration, code, format string, args ...any) error {
	return &refusal{status: http.StatusTooManyRequests, code: code, message: fmt.Sprintf(format, args...), after: after}
}

// tell writes a refusal, unless the answer has begun: then the error is the last
// thing that the stream says.
func tell(w *stream, d dialects.Dialect, r *refusal) {
	if w.begun {
		w.event(d.Failure(r.failure()))
		return
	}
	if r.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(r.after.Seconds()))))
	}
	reply(w, r.status, d.Failure(r.failure()).Data)
}

// reply writes JSON. A client that does not read loses its connection.
func reply(w *stream, status int, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.patient()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) // who is gone is told nothing
	w.control.SetWriteDeadline(time.Time{})
	return nil
}
