package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
)

// ErrClosed means that the server was shut down for good.
var ErrClosed = errors.New("the server was shut down")

// Refusal is a stream that takes no more appends, or the whole of JetStream when Stream is "".
type Refusal struct {
	Stream string
	Reason string // the server's words, such as "write …/1.blk: no space left on device"
}

// Refusing lists what refuses writes. In nats-server 2.15 a stream whose store failed once, as on a
// full disk, gives no answer to any append from then on, also when the cause is gone: only a
// Restart opens it again. Reads are answered all the time.
func (s *Server) Refusing() []Refusal {
	running := s.running()
	if !running.Running() { // a Restart has failed
		return []Refusal{{Reason: "the embedded log does not run"}}
	}
	answer := httptest.NewRecorder()
	running.HandleHealthz(answer, httptest.NewRequest(http.MethodGet, "/healthz?details=true", nil))
	refusing, err := ReadHealth(answer.Body.Bytes())
	if err != nil {
		return []Refusal{{Reason: err.Error()}}
	}
	return refusing
}

// ReadHealth reads what a NATS server answers to GET /healthz?details=true: what of it refuses
// writes. Other complaints, such as a folder that holds no stream, are not among it, and neither is
// that a server of a cluster looks for the others or catches up.
func ReadHealth(body []byte) ([]Refusal, error) {
	var health struct {
		Errors []struct{ Type, Stream, Error string }
	}
	if err := json.Unmarshal(body, &health); err != nil {
		return nil, fmt.Errorf("read the NATS server's health: %w", err)
	}
	var refusing []Refusal
	for _, e := range health.Errors {
		if _, reason, found := strings.Cut(e.Error, "write error: "); found {
			refusing = append(refusing, Refusal{e.Stream, reason})
		} else if e.Type == "JETSTREAM" && !joining(e.Error) {
			refusing = append(refusing, Refusal{Reason: e.Error})
		}
	}
	return refusing, nil
}

// joining reports whether a complaint is that of a server which joins its cluster, or has lost it:
// writes wait then, or go to another server.
func joining(complaint string) bool {
	return strings.Contains(complaint, "meta leader") || strings.Contains(complaint, "recovering meta layer")
}

// trialBytes is what must fit on the disk before a Restart is tried.
const trialBytes = 1 << 20

// Room tries out whether the server's disk takes writes again, by a file
// that is synced and removed.
func (s *Server) Room() error { return tryWrite(s.options.StoreDir) }

func tryWrite(dir string) error {
	trial := filepath.Join(dir, "room-for-writes")
	f, err := os.Create(trial)
	if err != nil {
		return err
	}
	defer os.Remove(trial)
	_, err = f.Write(make([]byte, trialBytes))
	return errors.Join(err, f.Sync(), f.Close())
}

// Restart ends the server and starts another one over the same files, at the same address, which
// opens all streams again. Clients reconnect by themselves. Facts that were acknowledged are on the
// disk; those that were not are asked for again by who stated them.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return ErrClosed
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	started, err := start(s.options)
	if err != nil {
		return fmt.Errorf("restart the embedded log: %w", err)
	}
	s.server = started
	return nil
}
