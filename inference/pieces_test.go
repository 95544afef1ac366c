package inference_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// toy is an engine in memory that speaks vLLM's paths of tokens. Each token of its answers ends the answer with a chance of one in toyMean. It dies within a request where die says so.
type toy struct {
	t *testing.T
	// fixed: what it samples follows from the prompt and the place alone. Else it follows from the seed of each request, or from nothing where it is unseeded, as with many engines.
	fixed, unseeded bool
	die             func() bool // before an event of a stream
	asked           int
}

const (
	toyMean  = 600
	toyMost  = 2400
	toyChunk = 60
	toyStop  = 1
)

// RoundTrip implements http.RoundTripper.
func (e *toy) RoundTrip(r *http.Request) (*http.Response, error) {
	var in struct {
		IDs      []int32 `json:"token_ids"`
		Seed     int64   `json:"seed"`
		Messages []inference.Message
		Stream   bool
		Params   struct {
			Seed int64
			Most int `json:"max_tokens"`
		} `json:"sampling_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		e.t.Error(err)
	}
	answer := func(kind string, body io.Reader) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), Request: r}, nil
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/derender"):
		return answer("application/json", strings.NewReader(`{"choices":[{"message":{"role":"assistant","content":"."}}]}`))
	case strings.HasSuffix(r.URL.Path, "/render"):
		prompt := fmt.Sprintf(`{"token_ids":[5,%s],"sampling_params":{"seed":%d}}`, in.Messages[0].Content, in.Seed)
		return answer("application/json", strings.NewReader(prompt))
	}
	e.asked++
	ids, skip := sampledBy(in.Params.Seed, in.Params.Most), 0
	switch {
	case e.unseeded:
		ids = sampledBy(in.Params.Seed+int64(e.asked)<<32, in.Params.Most)
	case e.fixed:
		skip = len(in.IDs) - 2
		ids = sampledBy(int64(in.IDs[1]), skip+in.Params.Most)
	}
	var stream bytes.Buffer
	prompt, _ := json.Marshal(in.IDs)
	fmt.Fprintf(&stream, "data: {\"prompt_token_ids\":%s,\"choices\":[]}\n\n", prompt)
	for at := skip; at < len(ids); at += toyChunk {
		if e.die != nil && e.die() {
			return answer("text/event-stream", io.MultiReader(&stream, dead{}))
		}
		end := min(at+toyChunk, len(ids))
		var logprobs []map[string]float32
		for i := at; i < end; i++ {
			logprobs = append(logprobs, map[string]float32{"logprob": -float32(ids[i]) / 1000})
		}
		finish := "null"
		if end == len(ids) {
			if finish = `"length"`; ids[end-1] == toyStop {
				finish = `"stop"`
			}
		}
		list, _ := json.Marshal(ids[at:end])
		entries, _ := json.Marshal(logprobs)
		fmt.Fprintf(&stream, "data: {\"choices\":[{\"token_ids\":%s,\"logprobs\":{\"content\":%s},\"finish_reason\":%s}],\"weight_version\":%d}\n\n", list, entries, finish, e.asked)
	}
	return answer("text/event-stream", &stream)
}

// sampledBy are the tokens that a seed gives, up to a stop token or so many.
func sampledBy(seed int64, most int) (ids []int32) {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	for len(ids) < most && (len(ids) == 0 || ids[len(ids)-1] != toyStop) {
		id := int32(2 + rng.IntN(1000))
		if rng.Float64()*toyMean < 1 {
			id = toyStop
		}
		ids = append(ids, id)
	}
	return ids
}

// dead is a connection whose other side has died.
type dead struct{}

func (dead) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// answer samples one answer as a generator does that asks again where a try fails. keep is asked of each piece; a generator that is killed keeps no more, and another one goes on with what was kept.
func (e *toy) answer(key int, forget bool, killed func() bool) events.TurnSampled {
	e.t.Helper()
	client := inference.Client{HTTP: &http.Client{Transport: e}, MaxTokens: toyMost}
	var recorded *events.UnderWay
	for range 10_000 {
		dying := false
		seed := int64(key)
		conv := inference.Conversation{
			Request: inference.Request{Messages: []inference.Message{{Role: "user", Content: fmt.Sprint(key)}}, Seed: &seed},
			Begun:   recorded,
			Piece: func(_ context.Context, p events.PieceSampled) error {
				if dying = dying || killed != nil && killed(); dying {
					return errors.New("killed")
				}
				if forget {
					return nil
				}
				var err error
				recorded, err = recorded.Add(p)
				return err
			},
		}
		answer, err := client.CompleteTokens(e.t.Context(), "http://toy/v1", conv, func(int) (int, *inference.Failure) { return toyMost, nil })
		if err != nil {
			continue
		}
		turn, _, err := answer.Turn(0, -1, time.Now())
		answer.Done()
		if err != nil || turn.TextOnly || len(turn.Logprobs) != len(turn.TokenIDs) {
			e.t.Fatalf("%d tokens: %v", len(turn.TokenIDs), err)
		}
		return turn
	}
	e.t.Fatalf("answer %d never came to its end", key)
	return events.TurnSampled{}
}

const toyAnswers = 1000

// lengths are those of so many answers, sorted.
func (e *toy) lengths(n int, forget bool) (lengths []int) {
	for key := range n {
		lengths = append(lengths, len(e.answer(key+1, forget, nil).TokenIDs))
	}
	slices.Sort(lengths)
	return lengths
}

// distance is the Kolmogorov-Smirnov distance of lengths from the distribution of undisturbed answers.
func distance(lengths []int) (most float64) {
	for n := 1; n <= toyMost; n++ {
		below := 1.0
		if n < toyMost {
			below = 1 - math.Pow(1-1.0/toyMean, float64(n))
		}
		at, _ := slices.BinarySearch(lengths, n+1)
		most = max(most, math.Abs(below-float64(at)/float64(len(lengths))))
	}
	return most
}

// dies is a death before one event in so many.
func dies(seed uint64, oneIn int) func() bool {
	rng := rand.New(rand.NewPCG(seed, 3))
	return func() bool { return rng.IntN(oneIn) == 0 }
}

// TestKillsFavourNoLength: answers whose engine is killed again and again are as long as others. Where each begins anew instead, they are much shorter.
func TestKillsFavourNoLength(t *testing.T) {
	killed := &toy{t: t, die: dies(1, 10)}
	whole, resumed := (&toy{t: t}).lengths(toyAnswers, false), killed.lengths(toyAnswers, false)
	anew := (&toy{t: t, die: dies(2, 10), unseeded: true}).lengths(toyAnswers/10, true)
	const far = 1.63 // over the square root of their number: so far are lengths of this distribution once in a hundred times
	most := far / math.Sqrt(toyAnswers)
	t.Logf("the lengths of whole answers are %.3f from their distribution, those of killed ones %.3f, and those that begin anew %.3f; %d requests for %d killed answers",
		distance(whole), distance(resumed), distance(anew), killed.asked, toyAnswers)
	if distance(whole) > most || distance(resumed) > most || killed.asked < 3*toyAnswers/2 {
		t.Errorf("at most %.3f is as it should be", most)
	}
	if distance(anew) < far/math.Sqrt(toyAnswers/10) {
		t.Error("where answers begin anew nothing is seen of it, so this test shows nothing")
	}
}

// TestKilledAnswersAreTheSame: where a token follows from its place, a thousand answers are token for token what they would have been, though engines and generators are killed at random. Each
// token has its log-probability, and the version that its request reported.
func TestKilledAnswersAreTheSame(t *testing.T) {
	killed := &toy{t: t, fixed: true, die: dies(4, 10)}
	kill, parts, asked := dies(5, 4), 0, 0
	for key := range toyAnswers {
		asked = killed.asked
		got, want := killed.answer(key+1, false, kill), sampledBy(int64(key+1), toyMost)
		var logprobs []float32
		for _, id := range want {
			logprobs = append(logprobs, -float32(id)/1000)
		}
		finish := events.FinishStop
		if want[len(want)-1] != toyStop {
			finish = events.FinishLength
		}
		if !slices.Equal(got.TokenIDs, want) || !slices.Equal(got.Logprobs, logprobs) || got.FinishReason != finish {
			t.Fatalf("answer %d has %d tokens and ended with %s, want %d and %s", key, len(got.TokenIDs), got.FinishReason, len(want), finish)
		}
		if spans := max(1, len(got.VersionSpans)); got.Parts > 1 && got.Parts != spans || killed.asked-asked < spans || got.LatestVersion() != int64(killed.asked) {
			t.Errorf("answer %d of %d parts has the versions %+v, behind %d requests", key, got.Parts, got.VersionSpans, killed.asked-asked)
		}
		if got.Parts > 1 {
			parts += got.Parts
		}
	}
	if parts < toyAnswers || killed.asked < 2*toyAnswers {
		t.Errorf("only %d parts, of %d requests", parts, killed.asked)
	}
}
