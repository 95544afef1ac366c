package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// maxPromptIDs bounds the prompts' token ids in a document: each turn has its whole prompt, so they
// grow with the square of the turns.
const maxPromptIDs = 4 << 20

// exportATIF writes a document for each conversation of each rollout.
func exportATIF(ctx context.Context, x *Exporter, lines []Rollout) (int, error) {
	for i, t := range lines {
		trajectory, branches, err := x.branches(ctx, t)
		if err != nil {
			return i, err
		}
		for _, b := range branches {
			extension := ".json"
			if len(branches) > 1 {
				extension = fmt.Sprintf("-turn%d.json", b.leaf)
			}
			document, err := encodeATIF(toATIF(trajectory, b, len(branches), t))
			if err != nil {
				return i, fmt.Errorf("rollout %s of run %s: %w", t.Rollout, t.Run, err)
			}
			if err := writeFile(x.file(t, extension), document); err != nil {
				return i, err
			}
		}
	}
	return len(lines), nil
}

func encodeATIF(t *atifTrajectory) ([]byte, error) {
	if len(t.Steps) == 0 {
		return nil, fmt.Errorf("the trajectory has no messages, and %s asks for at least one step", atifVersion)
	}
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(t); err != nil {
		return nil, err
	}
	return document.Bytes(), nil
}

// toATIF makes a step of each message of a conversation, which is one of so many of its
// rollout, and of each generation with the answers to its tool calls. What stands in another
// document, too, is copied context.
func toATIF(whole *storage.Trajectory, b branch, of int, line Rollout) *atifTrajectory {
	branched := *whole
	branched.Messages = b.messages
	t := &branched
	d := &atifTrajectory{
		SchemaVersion: atifVersion, SessionID: line.Run, TrajectoryID: t.Rollout,
		Agent: atifAgent{Name: "rondo", Version: ownVersion(), ModelName: line.Policy},
		Steps: []atifStep{},
		Extra: map[string]any{"group": t.Group, "task": t.Task, "stop_reason": t.StopReason,
			"dispatch_version": t.DispatchVersion, "text_only": t.TextOnly},
	}
	d.FinalMetrics.Extra = map[string]any{"reward": *line.Reward, "advantage": line.Advantage,
		"reward_components": line.Components}
	if of > 1 {
		d.TrajectoryID = fmt.Sprintf("%s-turn%d", t.Rollout, b.leaf)
		d.Extra["rollout"], d.Extra["branches"] = t.Rollout, of
	}
	prompts := promptTokens(t)
	withPrompts := prompts <= maxPromptIDs
	if !withPrompts {
		d.Notes = fmt.Sprintf("prompt_token_ids are left out: all prompts together have %d tokens (limit %d)", prompts,
			maxPromptIDs)
	}
	var context []int32 // the tokens of the segment so far
	segment := int32(0)
	for i := 0; i < len(t.Messages); i++ {
		m := t.Messages[i]
		if m.Segment != segment {
			context, segment = nil, m.Segment
		}
		if m.Role != "assistant" {
			if m.Role != "prompt" {
				step := plainStep(m)
				step.Copied = i < b.copied
				d.add(step)
			}
			context = append(context, m.TokenIDs...)
			continue
		}
		answers := answersTo(t.Messages[i+1:])
		masked, model := t.Masked[m.Segment], line.Policy
		if masked != "" && line.answering != nil {
			model = cmp.Or(line.answering(masked), model)
		}
		step := agentStep(m, answers, model)
		if i < b.copied {
			step.Copied, step.LLMCalls = true, nil
		}
		if masked != "" { // what it said is not trained on
			step.Extra["masked"] = masked
			if i >= b.copied { // a model was asked for it
				once := 1
				step.Copied, step.LLMCalls = false, &once
			}
		}
		if !t.TextOnly && !step.Copied && masked == "" {
			step.Metrics = generated(m, context, withPrompts)
			d.FinalMetrics.PromptTokens += step.Metrics.PromptTokens
			d.FinalMetrics.CompletionTokens += step.Metrics.CompletionTokens
		}
		d.add(step)
		context = append(context, m.TokenIDs...)
		for _, answer := range answers {
			context = append(context, answer.TokenIDs...)
		}
		i += len(answers)
	}
	d.FinalMetrics.Steps = len(d.Steps)
	return d
}

func (d *atifTrajectory) add(s atifStep) {
	s.StepID = len(d.Steps) + 1
	d.Steps = append(d.Steps, s)
}

// answersTo are the answers of tools that follow a generation in its segment.
func answersTo(rest []storage.Message) []storage.Message {
	for i, m := range rest {
		if m.Role != "tool" || m.Segment != rest[0].Segment {
			return rest[:i]
		}
	}
	return rest
}

// promptTokens adds up the lengths of all prompts.
func promptTokens(t *storage.Trajectory) (sum int) {
	length, segment := 0, int32(0)
	for _, m := range t.Messages {
		if m.Segment != segment {
			length, segment = 0, m.Segment
		}
		if m.Role == "assistant" {
			sum += length
		}
		length += len(m.TokenIDs)
	}
	return sum
}

// plainStep is a message that no model wrote. The answer of a tool that nothing asked for is an
// observation of the system.
func plainStep(m storage.Message) atifStep {
	s := atifStep{Source: "system", Message: m.Content, Timestamp: timestamp(m.StartedAt)}
	switch m.Role {
	case "user":
		s.Source = "user"
	case "tool":
		s.Message, s.Observation = "", &atifObservation{Results: []atifResult{{Content: m.Content}}}
	case "system":
	default:
		s.Extra = map[string]any{"role": m.Role}
	}
	return s
}

func agentStep(m storage.Message, answers []storage.Message, model string) atifStep {
	once := 1
	reasoning, said := Thoughts(m)
	s := atifStep{
		Source: "agent", ModelName: model, Message: said, Reasoning: reasoning,
		Timestamp: timestamp(m.StartedAt), LLMCalls: &once,
		Extra: map[string]any{"turn": m.Turn, "segment": m.Segment, "policy_version": m.PolicyVersion,
			"finish_reason": m.FinishReason, "duration_ms": m.Duration.Milliseconds()},
	}
	var spans []events.VersionSpan
	for _, v := range m.Versions {
		spans = append(spans, events.VersionSpan{Version: v.Version, Start: int(v.Start), End: int(v.Start + v.Length)})
	}
	if spans != nil {
		s.Extra["version_spans"] = spans
	}
	if len(m.Columns) > 0 {
		s.Extra["token_columns"] = m.Columns
	}
	// what was sampled here has a loss, also where its version is unknown
	if m.PolicyVersion < 0 && spans == nil && !slices.Contains(m.LossMask, true) {
		s.Copied, s.LLMCalls = true, nil // no model was asked for it here: the rollout is a fork
	}
	calls, left := PairCalls(Calls(m), answers, nil)
	var results []atifResult
	var times []map[string]any
	names := map[string]bool{}
	for i, c := range calls {
		id := c.Call.ID
		if id == "" || names[id] { // a call must be told from the others of its step
			id = fmt.Sprintf("turn%d_call%d", m.Turn, i)
		}
		names[id] = true
		s.ToolCalls = append(s.ToolCalls, atifCall{ID: id, Function: c.Call.Name,
			Arguments: objectOf(c.Call.Arguments)})
		ran := map[string]any{}
		if c.Answer != nil {
			results = append(results, atifResult{SourceCallID: id, Content: c.Answer.Content})
			ran["started_at"], ran["duration_ms"] = timestamp(c.Answer.StartedAt), c.Answer.Duration.Milliseconds()
		}
		times = append(times, ran)
	}
	for _, answer := range left {
		results = append(results, atifResult{Content: answer.Content})
	}
	if len(results) > 0 {
		s.Observation = &atifObservation{Results: results}
	}
	if len(calls) > 0 {
		s.Extra["tool_invocations"] = times // in the order of tool_calls
	}
	return s
}

// generated are the tokens of a generation. Tokens that a harness put into the message without
// sampling them end its prompt.
func generated(m storage.Message, context []int32, withPrompt bool) *atifMetrics {
	metrics := &atifMetrics{}
	prompt := slices.Clip(context)
	for i, id := range m.TokenIDs {
		if m.LossMask[i] {
			metrics.CompletionIDs, metrics.Logprobs = append(metrics.CompletionIDs, id),
				append(metrics.Logprobs, m.Logprobs[i])
		} else if len(metrics.CompletionIDs) == 0 {
			prompt = append(prompt, id)
		}
	}
	metrics.PromptTokens, metrics.CompletionTokens = len(prompt), len(metrics.CompletionIDs)
	if withPrompt {
		metrics.PromptIDs = prompt
	}
	return metrics
}

// objectOf is the JSON object that a model wrote as arguments, or one that
// says what it wrote instead.
func objectOf(arguments string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) == nil && object != nil {
		return json.RawMessage(arguments)
	}
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage("{}")
	}
	wrapped, _ := json.Marshal(map[string]string{"malformed_arguments": arguments}) // a map of texts is always JSON
	return wrapped
}

func timestamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// ownVersion is the version of this program.
func ownVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
