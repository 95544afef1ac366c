package inference_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// recording has a conversation record its answer.
func recording(conv *inference.Conversation) {
	conv.Piece = func(_ context.Context, p events.PieceSampled) (err error) {
		conv.Begun, err = conv.Begun.With(p)
		return err
	}
}

// long is an answer of more tokens than a piece has, with thoughts and a call.
func long() string {
	return tokenstest.Templates["Qwen3"].Answer(strings.Repeat("I think of it. ", 120), "I read it now.", "a")
}

// TestStreamedAnswer: an answer is the same turn whether it is streamed or not, and though its connection breaks and its server goes away in the middle. Only a long one is recorded before its end.
func TestStreamedAnswer(t *testing.T) {
	short := tokenstest.Templates["Qwen3"].Answer("I think.", "Done.", "")
	for name, c := range map[string]struct {
		said    string
		streams int
		older   bool
		cuts    []int // tokens that each request sends before its connection breaks
		pieces  int
		parts   int
	}{
		"short":           {short, tokenstest.Streaming, false, nil, 0, 0},
		"long":            {long(), tokenstest.Streaming, false, nil, 1, 0},
		"vLLM 0.32":       {long(), tokenstest.Streaming, true, nil, 1, 0},
		"refused":         {long(), tokenstest.RefusesStream, false, nil, 0, 0},
		"ignored":         {long(), tokenstest.IgnoresStream, false, nil, 0, 0},
		"broken":          {long(), tokenstest.Streaming, false, []int{16}, 2, 2},
		"broken at once":  {long(), tokenstest.Streaming, false, []int{0}, 1, 0},
		"broken often":    {long(), tokenstest.Streaming, false, []int{16, 0, 512, 8}, 3, 4},
		"broken near end": {short, tokenstest.Streaming, false, []int{8}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := tokenstest.New(t, "Qwen3", nil)
			s.Streams, s.Older = c.streams, c.older
			s.Say = func(prompt string) (string, string) {
				_, begun, _ := strings.Cut(prompt, s.Template.Prompt)
				return c.said[len(begun):], ""
			}
			k := newTalk(t, s)
			plain, err := k.ask()
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Done()
			want, _, err := plain.Turn(0, 7, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			cuts := c.cuts
			s.Cut = func(sent int) bool {
				if len(cuts) == 0 || sent < cuts[0] {
					return false
				}
				cuts = cuts[1:]
				return true
			}
			conv, pieces := k.conversation(), 0
			recording(&conv)
			record := conv.Piece
			conv.Piece = func(ctx context.Context, p events.PieceSampled) error { pieces++; return record(ctx, p) }
			var answer *inference.Response
			for range len(c.cuts) + 1 {
				if answer, err = k.complete(conv); err == nil {
					break
				}
				if failure, is := errors.AsType[*inference.Failure](err); !is || failure.Permanent || failure.Class != events.ClassEndpoint {
					t.Fatal(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Done()
			got, _, err := answer.Turn(0, 7, time.Now())
			if err != nil || got.TextOnly || len(got.Lacks) > 0 || got.Reasoning == nil || want.Reasoning == nil {
				t.Fatalf("%d tokens, %.200q, %s: %v", len(got.TokenIDs), got.Content, got.FinishReason, err)
			}
			if c.parts < 2 && !(slices.Equal(got.TokenIDs, want.TokenIDs) && slices.Equal(got.Logprobs, want.Logprobs)) { // the model of this test may cut the rest of a text into other tokens
				t.Error("the tokens are others")
			}
			if s.Tokenizer.Decode(got.TokenIDs) != s.Tokenizer.Decode(want.TokenIDs) || got.Content != want.Content ||
				got.Reasoning.Text != want.Reasoning.Text || len(got.ToolCalls) != len(want.ToolCalls) || got.FinishReason != want.FinishReason || got.PromptTokens != want.PromptTokens {
				t.Errorf("the turn has %d tokens, %q and %d calls, want %d, %q and %d", len(got.TokenIDs), got.Content, len(got.ToolCalls), len(want.TokenIDs), want.Content, len(want.ToolCalls))
			}
			if pieces != c.pieces || got.Parts != c.parts {
				t.Errorf("%d pieces and %d parts, want %d and %d", pieces, got.Parts, c.pieces, c.parts)
			}
		})
	}
}

// TestAbortedStream: what was streamed of an answer that the server aborts is recorded, and gone on with.
func TestAbortedStream(t *testing.T) {
	text := long()
	s := aborting(t, "vLLM", text, 3)
	k := newTalk(t, s)
	conv := k.conversation()
	recording(&conv)
	answer, err := k.complete(conv)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Done()
	turn, _, err := answer.Turn(0, 7, time.Now())
	var ids []int32
	for _, asked := range s.Turns() {
		ids = append(ids, asked.Sampled...)
	}
	if err != nil || turn.Parts != 3 || !slices.Equal(turn.TokenIDs, ids) || len(turn.VersionSpans) != 3 || turn.VersionSpans[2].Version != 3 {
		t.Errorf("%d of %d tokens, in %d parts of the versions %+v: %v", len(turn.TokenIDs), len(ids), turn.Parts, turn.VersionSpans, err)
	}
	if conv.Begun == nil || !slices.Equal(conv.Begun.Versions, events.SpansBetween(turn.VersionSpans, 0, len(conv.Begun.TokenIDs))) {
		t.Errorf("recorded are %+v, want %+v", conv.Begun, turn.VersionSpans)
	}
}

// TestBegunAnswers: the rest of an answer has the rest of its tokens, and none where all are there. What is recorded behind another prompt, or for a server that cannot go on with it, is not used.
func TestBegunAnswers(t *testing.T) {
	s := tokenstest.New(t, "Qwen3", func(string) (string, string) { return strings.Repeat("on and ", 50), "" })
	k := newTalk(t, s)
	k.most = 40
	first, err := k.ask()
	if err != nil {
		t.Fatal(err)
	}
	first.Done()
	prompt := s.Turns()[0].Prompt
	begin := func(n int, prompt []int32) *events.UnderWay {
		u, err := (*events.UnderWay)(nil).With(events.PieceSampled{
			Prompt: events.PromptDigest(prompt), TokenIDs: slices.Repeat([]int32{9}, n), Logprobs: slices.Repeat([]float32{-0.25}, n),
			VersionSpans: []events.VersionSpan{{Version: 4, End: n}}, StartedAt: time.Unix(1, 0), LatencyMS: 60_000,
		})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, c := range map[string]struct {
		begun       *events.UnderWay
		asked, left int
	}{
		"begun": {begin(30, prompt), 1, 10}, "whole": {begin(40, prompt), 0, 0}, "longer": {begin(41, prompt), 0, 0}, "another prompt": {begin(30, prompt[1:]), 1, 40},
	} {
		before := len(s.Turns())
		conv := k.conversation()
		recording(&conv)
		conv.Begun = c.begun
		answer, err := k.complete(conv)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		turn, _, err := answer.Turn(0, 7, time.Now())
		answer.Done()
		asked := s.Turns()[before:]
		if err != nil || len(asked) != c.asked || len(asked) == 1 && len(asked[0].Sampled) != c.left || turn.FinishReason != events.FinishLength {
			t.Errorf("%s: asked %d times, ended with %s: %v", name, len(asked), turn.FinishReason, err)
		}
		if own := len(turn.TokenIDs) - c.left; own > 0 && (turn.Logprobs[own-1] != -0.25 || turn.PolicyVersion != 4 && turn.VersionSpans[0].Version != 4 || turn.SamplingTime() < time.Minute) {
			t.Errorf("%s: %+v", name, turn)
		}
	}
	for _, engine := range []string{"SGLang", "llama.cpp"} {
		s := engines[engine](tokenstest.New(t, "Qwen3", func(string) (string, string) { return "Done.", "" }))
		k := newTalk(t, s)
		first, err := k.ask()
		if err != nil {
			t.Fatal(err)
		}
		first.Done()
		conv := k.conversation()
		recording(&conv)
		conv.Begun = begin(30, s.Turns()[0].Prompt)
		if _, err := k.complete(conv); err == nil || !strings.Contains(err.Error(), "cannot go on behind") {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

// events that are sent as they are, in place of an answer.
type stream string

func (s stream) RoundTrip(r *http.Request) (*http.Response, error) {
	kind, body := "text/event-stream", string(s)
	if strings.HasSuffix(r.URL.Path, "/render") {
		kind, body = "application/json", `{"token_ids":[5,6],"sampling_params":{}}`
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestHostileStreams: a stream that is none of an answer costs a try, and says why. Tokens that came before are recorded, others are not.
func TestHostileStreams(t *testing.T) {
	event := func(fields string) string { return "data: {" + fields + "}\n\n" }
	tokens := func(n int, more string) string {
		return event(fmt.Sprintf(`"choices":[{"token_ids":[%s7],"logprobs":{"content":[%s{"logprob":-1}]}%s}]`, strings.Repeat("7,", n-1), strings.Repeat(`{"logprob":-1},`, n-1), more))
	}
	good, end := tokens(2, ""), tokens(1, `,"finish_reason":"stop"`)
	for name, c := range map[string]struct {
		stream    string
		says      string
		recorded  int
		permanent bool
	}{
		"nothing":                {"", "the stream ended within the answer", 0, false},
		"no end":                 {good, "the stream ended within the answer", 2, false},
		"done without end":       {good + "data: [DONE]\n\n" + end, "the stream ended within the answer", 2, false},
		"no JSON":                {good + "data: {\n\n", "unexpected end", 2, false},
		"an error":               {good + event(`"error":{"message":"the engine is dead","code":500}`), "the engine is dead", 2, false},
		"two choices":            {good + event(`"choices":[{},{}]`), "2 choices", 2, false},
		"no log-probability":     {good + event(`"choices":[{"token_ids":[7]}]`), "1 token ids and 0 log-probabilities", 2, false},
		"null log-probability":   {good + event(`"choices":[{"token_ids":[7],"logprobs":{"content":[{"logprob":null}]}}]`), "has null", 2, false},
		"another prompt":         {event(`"prompt_token_ids":[5],"choices":[{}]`) + good + end, "another prompt", 0, false},
		"another prompt at last": {strings.Repeat(tokens(100, ""), 6) + event(`"prompt_token_ids":[5],"choices":[{}]`) + end, "another prompt", 600, false},
		"behind the end":         {end + good, "goes on behind the end", 1, false},
		"more than asked for":    {strings.Repeat(tokens(100, ""), 11), "more than the 1000 tokens", 1000, false},
		"too long":               {": " + strings.Repeat("x", 30<<20) + "\n", "more than", 0, true},
		"too many lines":         {strings.Repeat(": keep alive\n", 3<<20), "more than", 0, true},
	} {
		recorded := 0
		conv := inference.Conversation{
			Request: inference.Request{Messages: []inference.Message{{Role: "user", Content: "."}}},
			Piece:   func(_ context.Context, p events.PieceSampled) error { recorded += len(p.TokenIDs); return nil },
		}
		client := inference.Client{HTTP: &http.Client{Transport: stream(c.stream)}, MaxTokens: 1000}
		_, err := client.CompleteTokens(t.Context(), "http://hostile/v1", conv, func(int) (int, *inference.Failure) { return 1000, nil })
		failure, is := errors.AsType[*inference.Failure](err)
		if !is || failure.Permanent != c.permanent || !strings.Contains(failure.Error(), c.says) || recorded != c.recorded {
			t.Errorf("%s: %d tokens are recorded, and %v", name, recorded, err)
		}
	}
}

// TestStoppedGenerator: what has come of an answer is recorded when its generator is stopped.
func TestStoppedGenerator(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	recorded := 0
	conv := inference.Conversation{
		Request: inference.Request{Messages: []inference.Message{{Role: "user", Content: "."}}},
		Piece: func(ctx context.Context, p events.PieceSampled) error {
			recorded += len(p.TokenIDs)
			return ctx.Err()
		},
	}
	client := inference.Client{HTTP: &http.Client{Transport: stopping{stop}}, MaxTokens: 1000}
	_, err := client.CompleteTokens(ctx, "http://slow/v1", conv, func(int) (int, *inference.Failure) { return 1000, nil })
	if !errors.Is(err, context.Canceled) || recorded != 2 {
		t.Errorf("%d tokens are recorded: %v", recorded, err)
	}
}

// stopping sends two tokens, and then its client is stopped.
type stopping struct{ stop func() }

func (s stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := stream(`data: {"choices":[{"token_ids":[7,7],"logprobs":{"content":[{"logprob":-1},{"logprob":-1}]}}]}` + "\n\n").RoundTrip(r)
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		resp.Body = io.NopCloser(io.MultiReader(resp.Body, stopped{s.stop, r.Context()}))
	}
	return resp, err
}

type stopped struct {
	stop func()
	ctx  context.Context
}

func (s stopped) Read([]byte) (int, error) {
	s.stop()
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
