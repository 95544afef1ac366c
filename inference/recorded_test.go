package inference_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// What real servers answered to Rondo in tests/engines, byte for byte:
// `tests/engines/run --rewrite` records them. Names begin with engine and version.
const recordings = "testdata/engines"

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	answer, err := os.ReadFile(filepath.Join(recordings, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// replayed is a server that gives recorded answers, by the path of the request.
func replayed(t *testing.T, status int, answers map[string]string) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, name := range answers {
		answer := recorded(t, name)
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.Write(answer)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// inOrder is a server that gives the answers of a recorded turn, and fails the test where another
// path is asked than the recorded one.
func inOrder(t *testing.T, name string) (url string) {
	t.Helper()
	var said []struct {
		Path   string
		Answer json.RawMessage
	}
	if err := json.Unmarshal(recorded(t, name), &said); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(said) == 0 || said[0].Path != r.URL.Path {
			t.Errorf("%s is asked for, %d recorded answers are left", r.URL.Path, len(said))
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write(said[0].Answer)
		said = said[1:]
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// readTurn is the turn in an answer, with the prompt's tokens.
func readTurn(t *testing.T, answer *inference.Response, err error) (events.TurnSampled, []int32) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Done()
	turn, prompt, err := answer.Turn(0, -1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return turn, prompt
}

// checkCall checks that an answer with thoughts and a call was read.
func checkCall(t *testing.T, turn events.TurnSampled) {
	t.Helper()
	if turn.Reasoning == nil || len(turn.ToolCalls) == 0 || turn.ToolCalls[0].Name != "run_terminal_cmd" ||
		!json.Valid([]byte(turn.ToolCalls[0].Arguments)) || strings.Contains(turn.Content, "<t") {
		t.Errorf("%+v", turn)
	}
}

// checkTokens checks that an answer with tokens was read.
func checkTokens(t *testing.T, turn events.TurnSampled, prompt []int32) {
	t.Helper()
	if turn.TextOnly || len(turn.TokenIDs) == 0 || len(turn.TokenIDs) != len(turn.Logprobs) ||
		len(prompt) < 100 || len(turn.Lacks) > 0 {
		t.Errorf("%d tokens, %d log-probabilities, %d tokens of the prompt, lacks %v", len(turn.TokenIDs),
			len(turn.Logprobs), len(prompt), turn.Lacks)
	}
}

// TestRecordedTurns reads what real servers answered.
func TestRecordedTurns(t *testing.T) {
	client := inference.Client{HTTP: http.DefaultClient, MaxTokens: 4096}
	ask := inference.Request{Model: "toy", Messages: []inference.Message{{Role: "user", Content: "Mend it."}},
		Logprobs: true, ReturnTokenIDs: true}
	fit := func(int) (int, *inference.Failure) { return 256, nil }
	t.Run("vLLM by tokens", func(t *testing.T) {
		url := replayed(t, http.StatusOK, map[string]string{
			"/v1/chat/completions/render": "vllm-0.32.0-render", "/inference/v1/generate": "vllm-0.32.0-generate",
			"/v1/chat/completions/derender": "vllm-0.32.0-derender",
		})
		answer, err := client.CompleteTokens(t.Context(), url,
			inference.Conversation{Engine: inference.EngineVLLM, Request: ask}, fit)
		turn, prompt := readTurn(t, answer, err)
		checkCall(t, turn)
		checkTokens(t, turn, prompt)
		if turn.PolicyVersion != -1 { // its label is "default"
			t.Errorf("version %d", turn.PolicyVersion)
		}
	})
	t.Run("vLLM by messages", func(t *testing.T) {
		answer, err := client.Complete(t.Context(), replayed(t, http.StatusOK,
			map[string]string{"/v1/chat/completions": "vllm-0.32.0-chat"}), ask)
		turn, prompt := readTurn(t, answer, err)
		checkCall(t, turn)
		checkTokens(t, turn, prompt)
	})
	t.Run("llama.cpp by tokens", func(t *testing.T) {
		answer, err := client.CompleteTokens(t.Context(), inOrder(t, "llamacpp-0.3.36-turn"),
			inference.Conversation{Engine: inference.EngineLlamaCPP, Request: ask}, fit)
		turn, prompt := readTurn(t, answer, err)
		checkCall(t, turn)
		checkTokens(t, turn, prompt)
	})
	t.Run("llama.cpp by messages", func(t *testing.T) {
		answer, err := client.Complete(t.Context(), replayed(t, http.StatusOK,
			map[string]string{"/v1/chat/completions": "llamacpp-0.3.36-chat"}), ask)
		turn, _ := readTurn(t, answer, err)
		checkCall(t, turn)
		if !turn.TextOnly || turn.PromptTokens == 0 || turn.CompletionTokens == 0 {
			t.Errorf("%+v", turn)
		}
	})
}

// TestRecordedSpans: weights changed twice in the middle of a real turn.
func TestRecordedSpans(t *testing.T) {
	var answer inference.Response
	if err := json.Unmarshal(recorded(t, "vllm-0.32.0-spans"), &answer); err != nil {
		t.Fatal(err)
	}
	turn, _ := readTurn(t, &answer, nil)
	var versions []int64
	for _, s := range turn.VersionSpans {
		versions = append(versions, s.Version)
	}
	if err := events.CheckVersionSpans(turn.VersionSpans, len(turn.TokenIDs)); err != nil ||
		fmt.Sprint(versions) != "[1 2 3]" || turn.PolicyVersion != 1 {
		t.Errorf("version %d, spans %v: %v", turn.PolicyVersion, turn.VersionSpans, err)
	}
}

// TestRecordedAbort: a turn that was given up is none.
func TestRecordedAbort(t *testing.T) {
	var answer inference.Response
	if err := json.Unmarshal(recorded(t, "vllm-0.32.0-abort"), &answer); err != nil {
		t.Fatal(err)
	}
	if !answer.Aborted() {
		t.Errorf("%+v", answer.Choices)
	}
}

// TestRecordedContext: servers say how long their context is, and refuse what does not fit.
func TestRecordedContext(t *testing.T) {
	for engine, want := range map[string]inference.Overflow{
		"vllm-0.32.0":     {Limit: 1408}, // it stops counting
		"llamacpp-0.3.36": {Limit: 1536, Prompt: 3370},
	} {
		client := inference.Client{HTTP: http.DefaultClient}
		got, err := client.ContextLimit(t.Context(), replayed(t, http.StatusOK,
			map[string]string{"/v1/models": engine + "-models"}), "toy")
		if err != nil || got != want.Limit {
			t.Errorf("%s: the context is %d, want %d: %v", engine, got, want.Limit, err)
		}
		_, err = client.Complete(t.Context(), replayed(t, http.StatusBadRequest,
			map[string]string{"/v1/chat/completions": engine + "-context"}), inference.Request{})
		var f *inference.Failure
		if !errors.As(err, &f) || f.Overflow == nil || *f.Overflow != want {
			t.Errorf("%s: %v is not read as %+v", engine, err, want)
		}
	}
}
