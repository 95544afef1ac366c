package long

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/inference"
)

// Every so many turns of a rollout the request is sent again.
const everyTurn = 5

// leastRequests are sent again of short rollouts, too: of a few the time says little.
const leastRequests = 2000

// requests takes the processor time of conversations' requests alone: encode, post, answer, read, decode. As many are under way at once as rollouts were: what the
// caches and the garbage collector take depends on it. The values are milliseconds for a turn, by tenths of the rollout.
func requests(ctx context.Context, s *scripted.Server, url string, turns, rollouts int) (byTenth [parts]float64, err error) {
	var last inference.Request
	if err := json.Unmarshal(s.Longest(), &last); err != nil {
		return byTenth, err
	}
	asked, err := askedAgain(last, turns)
	if err != nil {
		return byTenth, err
	}
	client := inference.Client{HTTP: http.DefaultClient}
	again := max(1, leastRequests*everyTurn/turns/rollouts)
	for i, tenth := range asked {
		before := plane.ProcessorTime()
		g, ctx := errgroup.WithContext(ctx)
		for range rollouts {
			g.Go(func() error {
				for n := range again * len(tenth) {
					answer, err := client.Complete(ctx, url, tenth[n%len(tenth)])
					if err != nil {
						return err
					}
					answer.Done()
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return byTenth, err
		}
		byTenth[i] = milliseconds(plane.ProcessorTime()-before) / float64(again*rollouts*len(tenth))
	}
	return byTenth, nil
}

// askedAgain are the requests of a conversation that are sent again, by tenths; last is its last one. A tenth has one at least. Their messages are written beforehand: to write them is not
// the protocol's cost, but that of the program.
func askedAgain(last inference.Request, turns int) (byTenth [parts][]inference.Request, err error) {
	begins := 0 // messages before the turn's answer
	var written inference.Written
	for turn := range turns {
		for begins < len(last.Messages) && last.Messages[begins].Role != "assistant" {
			begins++
		}
		if tenth := turn * parts / turns; turn%everyTurn == 0 || len(byTenth[tenth]) == 0 {
			request := last
			request.Messages = last.Messages[:begins]
			written.JSON, err = inference.AppendMessages(written.JSON, request.Messages[written.Messages:])
			if err != nil {
				return byTenth, err
			}
			written.Messages = begins
			request.Written = written
			byTenth[tenth] = append(byTenth[tenth], request)
		}
		begins++
	}
	return byTenth, nil
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
