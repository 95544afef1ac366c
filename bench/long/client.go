package long

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/inference"
)

// Every so many turns of a rollout the plain client sends the request again.
const everyTurn = 10

// plainClient takes the processor time of a conversation's requests as the plainest client sends them: encode, post, read, decode, no more. The values are milliseconds for a
// turn, by tenths of the rollout.
func plainClient(s *server, url string, turns int) (byTenth [parts]float64, err error) {
	var last inference.Request
	if err := json.Unmarshal(s.longest, &last); err != nil {
		return byTenth, err
	}
	var counts [parts]int
	var took [parts]time.Duration
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
			if err := plainTurn(url, request); err != nil {
				return byTenth, err
			}
			counts[tenth]++
			took[tenth] += processorTime() - before
		}
		begins++
	}
	for i := range byTenth {
		byTenth[i] = milliseconds(took[i]) / float64(max(1, counts[i]))
	}
	return byTenth, nil
}

// plainTurn asks for one turn.
func plainTurn(url string, request inference.Request) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	resp, err := http.Post(url+"/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, mostRequest))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the scripted server answered %s", resp.Status)
	}
	var answer struct {
		PromptTokenIDs []int32 `json:"prompt_token_ids"`
		Choices        []struct {
			TokenIDs []int32 `json:"token_ids"`
			Message  inference.Message
			Logprobs struct {
				Content []struct {
					Token   string   `json:"token"`
					Logprob *float32 `json:"logprob"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	return json.Unmarshal(data, &answer)
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
