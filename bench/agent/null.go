package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events/runfile"
)

// beginning is what a conversation begins with.
type beginning struct {
	Messages []json.RawMessage `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
}

// told is what the null agent says of itself at its end.
type told struct {
	// CPU is the processor time of its process, and Turns are the times of its requests, in ms.
	CPU   float64   `json:"cpu_ms"`
	Turns []float64 `json:"turns_ms"`
}

// beginningFile is where the null agent finds what to begin with, below its home folder.
const beginningFile = ".null/beginning.json"

// IsNull reports whether this process is the null agent, in a sandbox.
func IsNull() bool { return filepath.Dir(os.Args[0]) == runfile.AgentFolder }

// MainNull is the main function of the null agent.
func MainNull() (code int) {
	if len(os.Args) > 1 && os.Args[1] == checked {
		return 0
	}
	if err := actNull(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// checked is the argument with which the null agent ends at once.
const checked = "--version"

func actNull() error {
	text, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), beginningFile))
	if err != nil {
		return err
	}
	var begin beginning
	if err := json.Unmarshal(text, &begin); err != nil {
		return err
	}
	turns, err := converse(context.Background(), http.DefaultClient, os.Getenv("OPENAI_BASE_URL"), begin,
		false, folder(".").readLines)
	if err != nil {
		return err
	}
	said := told{CPU: milliseconds(figures.ProcessorTime())}
	for _, t := range turns {
		said.Turns = append(said.Turns, milliseconds(t.whole))
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

// took is how long a request took: until the first words of its answer, and until the end of it.
type took struct{ first, whole time.Duration }

// message is what is read of an answer's message; of a stream it is made of its pieces.
type message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	ToolCalls []call `json:"tool_calls,omitempty"`
}

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// converse asks for turns until one calls no tool. The message of each answer is repeated as it
// came. With an error it gives the turns before that.
func converse(ctx context.Context, client *http.Client, base string, begin beginning, stream bool,
	tool func(arguments string) (string, error)) (turns []took, err error) {
	messages := slices.Clone(begin.Messages)
	for {
		body, err := json.Marshal(map[string]any{"model": "bench", "messages": messages,
			"tools": begin.Tools, "stream": stream})
		if err != nil {
			return turns, err
		}
		raw, t, err := ask(ctx, client, base, body, stream)
		if err != nil {
			return turns, fmt.Errorf("turn %d: %w", len(turns), err)
		}
		turns, messages = append(turns, t), append(messages, raw)
		var said message
		if err := json.Unmarshal(raw, &said); err != nil {
			return turns, err
		}
		if len(said.ToolCalls) == 0 {
			return turns, nil
		}
		for _, c := range said.ToolCalls {
			result, err := tool(c.Function.Arguments)
			if err != nil {
				return turns, err
			}
			answer, err := json.Marshal(map[string]string{"role": "tool", "tool_call_id": c.ID, "content": result})
			if err != nil {
				return turns, err
			}
			messages = append(messages, answer)
		}
	}
}

// ask asks for one turn.
func ask(ctx context.Context, client *http.Client, base string, body []byte,
	stream bool) (said json.RawMessage, t took, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, t, err
	}
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	answer, err := client.Do(r)
	if err != nil {
		return nil, t, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return nil, t, fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	if stream {
		said, t.first, err = readStream(answer.Body, began)
		t.whole = time.Since(began)
		return said, t, err
	}
	text, err := io.ReadAll(answer.Body)
	t.whole = time.Since(began)
	t.first = t.whole
	if err != nil {
		return nil, t, err
	}
	var whole struct {
		Choices []struct{ Message json.RawMessage }
	}
	if err := json.Unmarshal(text, &whole); err != nil || len(whole.Choices) != 1 {
		return nil, t, fmt.Errorf("%.200s: %w", text, errors.Join(err, errAnswer))
	}
	return whole.Choices[0].Message, t, nil
}

var errAnswer = errors.New("it is no answer of one choice")

// readStream joins the pieces of an answer; first is when the first words came.
func readStream(body io.Reader, began time.Time) (said json.RawMessage, first time.Duration, err error) {
	m := message{Role: "assistant"}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for ended := false; lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		if data == "[DONE]" {
			if !ended || first == 0 {
				return nil, 0, errAnswer
			}
			said, err = json.Marshal(m)
			return said, first, err
		}
		var piece struct {
			Choices []struct {
				Delta        message
				FinishReason string `json:"finish_reason"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &piece); err != nil || piece.Error != nil {
			return nil, 0, fmt.Errorf("%.200s: %w", data, errors.Join(err, errAnswer))
		}
		for _, c := range piece.Choices {
			if first == 0 && c.Delta.Content != "" {
				first = time.Since(began)
			}
			m.Content, m.ToolCalls = m.Content+c.Delta.Content, joinCalls(m.ToolCalls, c.Delta.ToolCalls)
			ended = ended || c.FinishReason != ""
		}
	}
	return nil, 0, errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// joinCalls adds the pieces of an answer's only call.
func joinCalls(calls, pieces []call) []call {
	for _, p := range pieces {
		if p.ID != "" {
			calls = append(calls, p)
		} else if n := len(calls); n > 0 {
			calls[n-1].Function.Arguments += p.Function.Arguments
		}
	}
	return calls
}

// folder has the files that are read.
type folder string

// readLines does what the tool read_file does: lines of a file, each with its number.
func (f folder) readLines(arguments string) (string, error) {
	var of struct {
		File   string `json:"target_file"`
		Offset int    `json:"offset"`
		Limit  int    `json:"limit"`
	}
	if err := json.Unmarshal([]byte(arguments), &of); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(string(f), of.File))
	if err != nil {
		return "", err
	}
	lines, said := strings.SplitAfter(string(text), "\n"), strings.Builder{}
	for n := of.Offset; n < of.Offset+of.Limit && n <= len(lines) && lines[n-1] != ""; n++ {
		fmt.Fprintf(&said, "%d|%s", n, lines[n-1])
	}
	return said.String(), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
