package long

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/inference"
)

// Every so many turns of a rollout the request is sent again.
const everyTurn = 5

// leastRequests are sent again of a tenth of short rollouts, too: of a few the time says little.
const leastRequests = 200

// requests takes what conversations' requests of the turns from one to before another use alone:
// encode, post, answer, read, decode. As many are under way at once as rollouts were: what the
// caches and the garbage collector take depends on it.
func requests(ctx context.Context, s *scripted.Server, url string, rollouts, from, to int) (cost, error) {
	var last inference.Request
	if err := json.Unmarshal(s.Longest(), &last); err != nil {
		return cost{}, err
	}
	asked, err := askedAgain(last, from, to)
	if err != nil {
		return cost{}, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = rollouts
	defer transport.CloseIdleConnections()
	client := inference.Client{HTTP: &http.Client{Transport: transport}}
	each := max(1, (leastRequests+rollouts*len(asked)-1)/(rollouts*len(asked))) * len(asked)
	began := used()
	g, ctx := errgroup.WithContext(ctx)
	for range rollouts {
		g.Go(func() error {
			for n := range each {
				answer, err := client.Complete(ctx, url, asked[n%len(asked)])
				if err != nil {
					return err
				}
				answer.Done()
			}
			return nil
		})
	}
	err = g.Wait()
	return used().since(began, rollouts*each), err
}

// askedAgain are the requests of a conversation that are sent again, of the turns from one to
// before another; last is its last one so far. Their messages are written beforehand: to write them
// is not the protocol's cost, but that of the program.
func askedAgain(last inference.Request, from, to int) (asked []inference.Request, err error) {
	begins := 0 // messages before the turn's answer
	var written inference.Written
	for turn := range to {
		for begins < len(last.Messages) && last.Messages[begins].Role != "assistant" {
			begins++
		}
		if turn >= from && (turn-from)%everyTurn == 0 {
			request := last
			request.Messages = last.Messages[:begins]
			written.JSON, err = inference.AppendMessages(written.JSON, request.Messages[written.Messages:])
			if err != nil {
				return nil, err
			}
			written.Messages = begins
			request.Written = written
			asked = append(asked, request)
		}
		begins++
	}
	return asked, nil
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
