package long

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/inference"
)

// Every so many turns of a rollout the request is sent again.
const everyTurn = 5

// leastRequests are sent again of a short rollout, too: of a few the time says little.
const leastRequests = 400

// requests takes the processor time of a conversation's requests alone: encode, post, answer, read, decode. The values are milliseconds for a turn, by tenths of the rollout.
func requests(ctx context.Context, s *server, url string, turns int) (byTenth [parts]float64, err error) {
	var last inference.Request
	if err := json.Unmarshal(s.longest, &last); err != nil {
		return byTenth, err
	}
	var counts [parts]int
	var took [parts]time.Duration
	client := inference.Client{HTTP: http.DefaultClient}
	for range max(1, leastRequests*everyTurn/turns) {
		begins := 0 // messages before the turn's answer
		for turn := range turns {
			for begins < len(last.Messages) && last.Messages[begins].Role != "assistant" {
				begins++
			}
			if turn%everyTurn == 0 {
				request := last
				request.Messages = last.Messages[:begins]
				tenth := turn * parts / turns
				before := processorTime()
				answer, err := client.Complete(ctx, url, request)
				if err != nil {
					return byTenth, err
				}
				answer.Done()
				counts[tenth]++
				took[tenth] += processorTime() - before
			}
			begins++
		}
	}
	for i := range byTenth {
		byTenth[i] = milliseconds(took[i]) / float64(max(1, counts[i]))
	}
	return byTenth, nil
}

// processorTime is what this process has used, the server in it included.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err) // it cannot fail with these arguments
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// heap is the live memory of this process in MiB.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
