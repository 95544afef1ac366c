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

// toy is an engine in memory that speaks the paths of tokens of one kind. Each token of its answers
// ends the answer with a chance of one in toyMean. It dies within a request where die says so.
type toy struct {
	t      *testing.T
	engine string
	// fixed: what it samples follows from the prompt and the place alone. Else it follows from the
	// seed of each request, or from nothing where it is unseeded, as with many engines.
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
		Content  string
		Stream   bool
		Params   struct {
			Seed    int64
			Most    int   `json:"max_tokens"`
			Sampled int64 `json:"sampling_seed"`
			New     int   `json:"max_new_tokens"`
		} `json:"sampling_params"`
		Inputs  []int32 `json:"input_ids"`
		Prompt  []int32 `json:"prompt"`
		Predict int     `json:"n_predict"`
	}
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			e.t.Error(err)
		}
	}
	answer := func(kind string, body io.Reader) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}},
			Body: io.NopCloser(body), Request: r}, nil
	}
	text := func(format string, values ...any) (*http.Response, error) {
		return answer("application/json", strings.NewReader(fmt.Sprintf(format, values...)))
	}
	switch r.URL.Path {
	case "/v1/chat/completions/derender", "/v1/chat/completions":
		return text(`{"choices":[{"message":{"role":"assistant","content":"."}}]}`)
	case "/v1/chat/completions/render":
		return text(`{"token_ids":[5,%s],"sampling_params":{"seed":%d}}`, in.Messages[0].Content, in.Seed)
	case "/server_info":
		return text(`{}`)
	case "/apply-template":
		return text(`{"prompt":%q}`, in.Messages[0].Content)
	case "/v1/tokenize":
		return text(`{"tokens":[5,%s]}`, in.Messages[0].Content)
	case "/tokenize":
		return text(`{"tokens":[5,%s]}`, in.Content)
	case "/detokenize":
		return text(`{"text":".","content":"."}`)
	}
	e.asked++
	in.IDs = slices.Concat(in.IDs, in.Inputs, in.Prompt) // one of them is there
	in.Params.Most += in.Params.New + in.Predict
	in.Params.Seed += in.Params.Sampled + in.Seed
	ids, skip := sampledBy(in.Params.Seed, in.Params.Most), 0
	switch {
	case e.unseeded:
		ids = sampledBy(in.Params.Seed+int64(e.asked)<<32, in.Params.Most)
	case e.fixed:
		skip = len(in.IDs) - 2
		ids = sampledBy(int64(in.IDs[1]), skip+in.Params.Most)
	}
	if e.engine != inference.EngineVLLM {
		return answer("text/event-stream", e.native(in.IDs, ids[min(skip, len(ids)):]))
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
		fmt.Fprintf(&stream,
			"data: {\"choices\":[{\"token_ids\":%s,\"logprobs\":{\"content\":%s},\"finish_reason\":%s}],\"weight_version\":%d}\n\n",
			list, entries, finish, e.asked)
	}
	return answer("text/event-stream", &stream)
}

// native is a stream of SGLang's or llama.cpp's, behind a prompt.
func (e *toy) native(prompt, ids []int32) io.Reader {
	var stream bytes.Buffer
	write := func(body any) {
		data, err := json.Marshal(body)
		if err != nil {
			e.t.Error(err)
		}
		fmt.Fprintf(&stream, "data: %s\n\n", data)
	}
	type object = map[string]any
	finish := "length"
	if n := len(ids); n > 0 && ids[n-1] == toyStop {
		finish = "stop"
	}
	for at := 0; at < len(ids); at += toyChunk {
		if e.die != nil && e.die() {
			return io.MultiReader(&stream, dead{})
		}
		end := min(at+toyChunk, len(ids))
		if e.engine == inference.EngineSGLang {
			triples, meta := [][]any{}, object{"prompt_tokens": len(prompt), "completion_tokens": end,
				"weight_version": fmt.Sprint(e.asked), "finish_reason": nil}
			for _, id := range ids[:end] {
				triples = append(triples, []any{-float32(id) / 1000, id, nil})
			}
			if meta["output_token_logprobs"] = triples; end == len(ids) {
				meta["finish_reason"] = object{"type": finish}
			}
			write(object{"text": ".", "output_ids": ids[:end], "meta_info": meta})
			continue
		}
		for i, id := range ids[at:end] {
			prob := math.Exp(-float64(id) / 1000)
			write(object{"content": ".", "tokens": []int32{id}, "stop": false, "tokens_predicted": at + i + 1,
				"tokens_evaluated": len(prompt),
				"completion_probabilities": []object{{"id": id, "prob": prob,
					"top_probs": []object{{"id": id, "prob": prob}}}}})
		}
	}
	if e.engine == inference.EngineLlamaCPP {
		why := map[string]string{"stop": "eos", "length": "limit"}[finish]
		write(object{"content": "", "tokens": []int32{}, "stop": true, "stop_type": why, "tokens_predicted": len(ids),
			"tokens_evaluated": len(prompt)})
	}
	return &stream
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

// answer samples one answer as a generator does that asks again where a try fails. keep is asked of
// each piece; a generator that is killed keeps no more, and another one goes on with what was kept.
func (e *toy) answer(key int, forget bool, killed func() bool) events.TurnSampled {
	e.t.Helper()
	client := inference.Client{HTTP: &http.Client{Transport: e}, MaxTokens: toyMost}
	var recorded *events.UnderWay
	for range 10_000 {
		dying := false
		seed := int64(key)
		conv := inference.Conversation{
			Engine: e.engine,
			Request: inference.Request{Messages: []inference.Message{{Role: "user", Content: fmt.Sprint(key)}},
				Seed: &seed},
			Begun: recorded,
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
		answer, err := client.CompleteTokens(e.t.Context(), "http://toy/v1", conv,
			func(int) (int, *inference.Failure) { return toyMost, nil })
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

// distance is the Kolmogorov-Smirnov distance of lengths from the
// distribution of undisturbed answers.
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

// answersOf is how many answers are asked for at a server of some kind. Streams of others than vLLM
// have an event for each token, or repeat all before it.
func answersOf(kind string) int {
	if kind == inference.EngineVLLM {
		return toyAnswers
	}
	return toyAnswers / 5
}

// kinds are those of servers.
var kinds = []string{inference.EngineVLLM, inference.EngineSGLang, inference.EngineLlamaCPP}

// TestKillsFavourNoLength: answers whose engine is killed again and again are as long as others.
// Where each begins anew instead, they are much shorter.
func TestKillsFavourNoLength(t *testing.T) {
	for _, kind := range kinds {
		answers := answersOf(kind)
		killed := &toy{t: t, engine: kind, die: dies(1, 10)}
		whole, resumed := (&toy{t: t, engine: kind}).lengths(answers, false), killed.lengths(answers, false)
		anew := (&toy{t: t, engine: kind, die: dies(2, 10), unseeded: true}).lengths(toyAnswers/10, true)
		// over the square root of their number: so far are lengths of this
		// distribution once in a hundred times
		const far = 1.63
		most := far / math.Sqrt(float64(answers))
		t.Logf("%s: the lengths of whole answers are %.3f from their distribution, those of killed ones %.3f, and those that begin anew %.3f; %d requests for %d killed answers",
			kind, distance(whole), distance(resumed), distance(anew), killed.asked, answers)
		if distance(whole) > most || distance(resumed) > most || killed.asked < 3*answers/2 {
			t.Errorf("%s: at most %.3f is as it should be", kind, most)
		}
		if distance(anew) < far/math.Sqrt(toyAnswers/10) {
			t.Error("where answers begin anew nothing is seen of it, so this test shows nothing")
		}
	}
}

// TestKilledAnswersAreTheSame: where a token follows from its place, answers are token for token
// what they would have been, though engines and generators are killed at random. Each token has its
// log-probability, and the version that its request reported, if its engine reports any.
func TestKilledAnswersAreTheSame(t *testing.T) {
	for _, kind := range kinds {
		killed := &toy{t: t, engine: kind, fixed: true, die: dies(4, 10)}
		kill, parts, asked := dies(5, 4), 0, 0
		answers := answersOf(kind)
		for key := range answers {
			asked = killed.asked
			got, want := killed.answer(key+1, false, kill), sampledBy(int64(key+1), toyMost)
			same := len(got.Logprobs) == len(want)
			for i, id := range want {
				same = same && math.Abs(float64(got.Logprobs[i])+float64(id)/1000) < 1e-6
			}
			finish := events.FinishStop
			if want[len(want)-1] != toyStop {
				finish = events.FinishLength
			}
			if !slices.Equal(got.TokenIDs, want) || !same || got.FinishReason != finish {
				t.Fatalf("%s: answer %d has %d tokens and ended with %s, want %d and %s", kind, key, len(got.TokenIDs),
					got.FinishReason, len(want), finish)
			}
			versions := max(1, len(got.VersionSpans))
			if kind == inference.EngineLlamaCPP {
				versions = max(1, got.Parts)
			}
			if got.Parts > 1 && got.Parts != versions || killed.asked-asked < versions ||
				kind != inference.EngineLlamaCPP && got.LatestVersion() != int64(killed.asked) {
				t.Errorf("%s: answer %d of %d parts has the versions %+v, behind %d requests", kind, key, got.Parts,
					got.VersionSpans, killed.asked-asked)
			}
			if got.Parts > 1 {
				parts += got.Parts
			}
		}
		if parts < answers || killed.asked < 2*answers {
			t.Errorf("%s: only %d parts, of %d requests", kind, parts, killed.asked)
		}
	}
}
