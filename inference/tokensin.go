package inference

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
)

// Tokens in, tokens out: the prompt is the tokens that the model has seen and sampled, and those of
// the new messages. The server renders and parses, as it alone knows the model's template. Each
// kind of server has a file of its own: vllm.go, sglang.go and llamacpp.go.

// Engines whose paths of tokens are known, as servers name themselves in owned_by of their models.
const (
	EngineVLLM     = "vllm"
	EngineSGLang   = "sglang"
	EngineLlamaCPP = "llamacpp"
)

// kind is the kind as which a server is asked. One that is not known is asked as vLLM is.
func kind(engine string) string {
	if engine == EngineSGLang || engine == EngineLlamaCPP {
		return engine
	}
	return EngineVLLM
}

// countsAnew reports whether the server would sample the rest of an answer from another
// distribution than it would have sampled all of it from: SGLang's repetition penalty is
// on the tokens that its own request has sampled, where vLLM's and llama.cpp's is on
// those of the prompt, too.
func (conv Conversation) countsAnew() bool {
	penalty := conv.Request.RepetitionPenalty
	return conv.Engine == EngineSGLang && penalty != nil && *penalty != 1
}

// Conversation is what the next turn is asked with, where prompts are tokens.
type Conversation struct {
	// Engine is the server's kind, as Client.Engine finds it. Others than those that are
	// known are asked as vLLM is.
	Engine string
	// Chat: turns are asked for as messages, so that no tokens are known.
	Chat bool
	// Request holds the whole conversation as messages, the new ones behind the last answer.
	Request Request
	// Known are the tokens up to the end of the last sample, and Samples the answers among them;
	// none where the turn begins a segment.
	Known   []int32
	Samples []Sampled
	// Begun is what is recorded of the answer, which goes on behind it where the prompt is
	// the same; nil is nothing.
	Begun *events.UnderWay
	// Piece records a piece of the answer under way. Servers that can are asked
	// to stream where it is set.
	Piece func(ctx context.Context, p events.PieceSampled) error
	// Routed is how many of the known tokens have their experts recorded, from the first one on.
	Routed int
}

// engine is one turn by tokens at a server of some kind. Its errors are *Failures
// that do not tell the key.
type engine interface {
	// render writes messages as tokens, and asks for an answer where prompts says so.
	render(ctx context.Context, messages []Message, prompts bool) ([]int32, error)
	// end is where in the rendering of a conversation its first so many messages end, the last of
	// which is a sample; ok is false where that is not found.
	end(ctx context.Context, messages []Message, whole, sample []int32) (end int, ok bool, err error)
	// reseed gives the next request a seed of its own behind so many tokens of the answer.
	reseed(offset int)
	// sample asks for an answer of most tokens behind a prompt, and for the experts from one of its
	// tokens on; below 0 for none.
	sample(ctx context.Context, prompt []int32, most, from int) (*Response, error)
	// read has the server read the message in what was sampled, unless it has done so.
	read(ctx context.Context, answer *Response) error
}

// Engine is the kind of a server, as it names it itself; "" where it does not say.
// Its error is a *Failure.
func (c *Client) Engine(ctx context.Context, endpoint string) (string, error) {
	list, err := c.Models(ctx, endpoint)
	if err != nil || len(list) == 0 {
		return "", err
	}
	return list[0].OwnedBy, nil
}

// turn is what each engine's turn has.
type turn struct {
	*Client
	base    string // with /v1
	root    string // without
	chats   bool   // the turn is asked for as messages
	request Request
	share   *memory.Share
	// seed is that of the answer's first request, and recorder tells its pieces; both may be nil.
	seed     *int64
	recorder *recorder
}

// reseed implements engine. With the seed of the first request the next one would draw the same
// random numbers once more, which the tokens so far follow from.
func (t *turn) reseed(offset int) {
	if t.seed == nil || offset == 0 {
		return
	}
	seed := int64(rand.NewPCG(uint64(*t.seed), uint64(offset)).Uint64() >> 1)
	t.request.Seed = &seed
}

// post asks for an answer under a path of the server's.
func (t *turn) post(ctx context.Context, url string, request, answer any) error {
	return t.ask(ctx, url, request, answer, t.share)
}

func (c *Client) engine(base string, conv Conversation, share *memory.Share, r *recorder) engine {
	t := turn{c, base, strings.TrimSuffix(base, "/v1"), conv.Chat, conv.Request, share, conv.Request.Seed, r}
	switch kind(conv.Engine) {
	case EngineLlamaCPP:
		return &llamaTurn{turn: t}
	case EngineSGLang:
		return &sglangTurn{turn: t}
	}
	return &vllmTurn{turn: t}
}

// CompleteTokens asks for one turn as tokens. fit says how many tokens the answer may have
// behind a prompt of so many. Its errors are *Failures that do not tell the key. The caller
// calls Done as with Complete.
func (c *Client) CompleteTokens(ctx context.Context, endpoint string, conv Conversation,
	fit func(prompt int) (most int, full *Failure)) (*Response, error) {
	share := answers.Share(endpoint)
	answer, err := c.completeTokens(ctx, strings.TrimSuffix(endpoint, "/"), conv, fit, share)
	if err != nil {
		share.End()
		return nil, err
	}
	answer.share = share
	return answer, nil
}

func (c *Client) completeTokens(ctx context.Context, base string, conv Conversation, fit func(int) (int, *Failure),
	share *memory.Share) (*Response, error) {
	if field := conv.dropped(); field != "" {
		return nil, &Failure{Class: events.ClassEndpoint, Permanent: true,
			Err: fmt.Errorf("%s: %s reads it in chats alone, and the run's endpoint_api is tokens; leave it out", field,
				conv.Engine)}
	}
	var r *recorder
	if conv.Piece != nil && !conv.countsAnew() {
		r = &recorder{tell: conv.Piece, share: share, engine: kind(conv.Engine)}
	}
	e := c.engine(base, conv, share, r)
	prompt, err := promptOf(ctx, e, conv)
	if err != nil {
		return nil, err
	}
	most, full := fit(len(prompt))
	if full != nil {
		return nil, full
	}
	s := sampler{e, base, conv.Request.Columns, wireWidth(conv), share, r}
	routed := 0
	if len(prompt) >= len(conv.Known) && slices.Equal(prompt[:len(conv.Known)], conv.Known) {
		routed = min(conv.Routed, len(conv.Known)) // nothing is known where a segment begins
	}
	p, err := conv.begun(prompt, r)
	if err != nil {
		return nil, err
	}
	recorded := len(p.ids)
	answer, err := s.whole(ctx, prompt, most, routed, p)
	if err != nil {
		return nil, err
	}
	answer.recorded = recorded
	if answer.Choices[0].gaveUp() {
		return answer, nil
	}
	if err := patiently(ctx, partRest, unreached, func() error { return e.read(ctx, answer) }); err != nil {
		return nil, err
	}
	answer.Choices[0].withoutStop()
	return answer, nil
}

// dropped is a field of a request by which the model is to sample from another distribution, or
// to call a tool, and which the engine does not know where it samples by tokens; "" for none.
// vLLM renders all of them.
func (conv Conversation) dropped() string {
	var known func(field string) bool
	switch conv.Engine {
	case EngineSGLang:
		known = func(field string) bool { return samplingParams[field] != "" || field == "custom_logit_processor" }
	case EngineLlamaCPP:
		known = func(field string) bool { return slices.Contains(llamaFields, field) }
	default:
		return ""
	}
	for _, field := range slices.Sorted(maps.Keys(conv.Request.Extra)) {
		if field == "tool_choice" && conv.Request.extra(field) != `"auto"` {
			return field
		}
		if runfile.Constraining(field) && !known(field) {
			return field
		}
	}
	return ""
}

// extra is a further field in JSON, "" where it is not there.
func (r Request) extra(field string) string {
	value, set := r.Extra[field]
	if !set {
		return ""
	}
	text, err := Encode(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sampler asks an engine for answers, and reads what they have beside their tokens.
type sampler struct {
	engine
	base  string
	want  *runfile.TokenColumns
	width int // bytes in which the engine writes the number of an expert
	share *memory.Share
	// recorder is the engine's.
	recorder *recorder
}

// wireWidth is how many bytes an expert's number takes in an answer of a conversation's engine.
func wireWidth(conv Conversation) int {
	if want := conv.Request.Columns; conv.Engine != EngineSGLang && want != nil && want.RoutedExperts != nil {
		return want.RoutedExperts.Width()
	}
	return widestExpert
}

// sample asks for an answer to a prompt, and for the experts behind its first routed tokens.
func (s sampler) sample(ctx context.Context, prompt []int32, most, routed int) (*Response, error) {
	from := -1
	if s.want != nil && s.want.RoutedExperts != nil {
		from = expertsFrom(*s.want.RoutedExperts, s.width, routed, len(prompt), most)
	}
	sent, waited := time.Now(), s.share.Waited()
	s.recorder.request(sent)
	answer, err := s.engine.sample(ctx, prompt, most, from)
	if err != nil {
		return nil, err
	}
	answer.timed(sent, s.share, waited)
	if err := answer.answers(prompt, most); err != nil {
		return nil, malformed(s.base, err)
	}
	answer.beside = answer.readBeside(columnRequest{s.want, len(prompt), from}, answer.Choices[0].TokenIDs)
	return answer, nil
}

// promptOf is the next prompt. It is the tokens known and those of the new messages, which a
// rendering with stand-ins shows, or else the difference of two renderings: with and without the
// new messages. Both leave earlier thoughts out, as templates may, so that nothing but the new
// messages makes them differ. Where they differ in more, or nothing is known, the prompt is the
// rendering of all messages.
func promptOf(ctx context.Context, e engine, conv Conversation) ([]int32, error) {
	messages := conv.Request.Messages
	if !conv.goesOn() {
		return e.render(ctx, messages, true)
	}
	standing, stand := conv.standIns()
	if stand && conv.hasLike() {
		whole, err := e.render(ctx, standing, true)
		if err != nil {
			return nil, err
		}
		if added, ok := conv.addedTokens(whole); ok {
			return slices.Concat(conv.Known, added), nil
		}
	}
	last := conv.Samples[len(conv.Samples)-1]
	held, sample := last.Message+1, conv.Known[last.Begin:last.End]
	plain := slices.Concat(withoutThoughts(messages[:held]), messages[held:])
	if conv.Engine == EngineLlamaCPP && !last.Unsure { // it takes the first stop token for the end
		if !stand {
			return e.render(ctx, messages, true)
		}
		plain = standing
	}
	whole, err := e.render(ctx, plain, true)
	if err != nil {
		return nil, err
	}
	end, ok, err := e.end(ctx, plain[:held], whole, sample)
	if err != nil {
		return nil, err
	}
	if ok {
		if added, ok := join(sample, whole, end, last.Unsure); ok {
			return slices.Concat(conv.Known, added), nil
		}
	}
	return e.render(ctx, messages, true)
}

// goesOn reports whether a conversation goes on with samples that stand one after the other in its
// tokens and in its messages.
func (conv Conversation) goesOn() bool {
	token, message := 0, 0
	for _, s := range conv.Samples {
		if s.Begin < token || s.End < s.Begin || s.Message < message || s.Message >= len(conv.Request.Messages) {
			return false
		}
		token, message = s.End, s.Message+1
	}
	n := len(conv.Samples)
	return n > 0 && token == len(conv.Known) && conv.Samples[n-1].Begin < token
}

// chatOf is a request for the tokens of messages, as a chat has them. Of a chat that has more of
// which its prompt may be made, its error is ErrUncounted.
func (t *turn) chatOf(messages []Message, prompts bool) (map[string]any, error) {
	body := map[string]any{"model": t.request.Model, "messages": messages, "add_generation_prompt": prompts}
	if t.chats {
		if what := t.request.untold(); what != "" {
			return nil, uncounted(what)
		}
		written, err := AppendMessages(t.request.Written.JSON, messages[t.request.Written.Messages:])
		if err != nil {
			return nil, err
		}
		body["messages"] = json.RawMessage(slices.Concat([]byte{'['}, written, []byte{']'}))
	}
	if len(t.request.Tools) > 0 {
		body["tools"] = t.request.Tools
	}
	kwargs := maps.Clone(t.request.TemplateKwargs)
	if effort, told := t.request.Extra["reasoning_effort"]; told { // as in a chat
		if kwargs == nil {
			kwargs = map[string]any{}
		}
		kwargs["reasoning_effort"] = effort
	}
	if len(kwargs) > 0 {
		body["chat_template_kwargs"] = kwargs
	}
	return body, nil
}

// untold is what of a chat may make its prompt, and cannot be told a server that is asked for the
// tokens of messages; "" for nothing. Servers may leave tools out that are not to be called or not
// named, and write the chats of gpt-oss without its template.
func (r Request) untold() string {
	choice := cmp.Or(r.ToolChoice, strings.Trim(r.extra("tool_choice"), `"`), "auto")
	switch {
	case strings.Contains(strings.ToLower(r.Model), "gpt-oss"):
		return "the model " + r.Model
	case len(r.Tools) > 0 && choice != "auto" && choice != "required":
		return fmt.Sprintf("tools and the tool_choice %.80s", choice)
	}
	for _, field := range slices.Sorted(maps.Keys(r.Extra)) {
		if field != "tool_choice" && !runfile.LeavesPrompt(field) {
			return field
		}
	}
	return ""
}

// rendered checks the tokens of a rendering.
func rendered(url string, tokens []int32) ([]int32, error) {
	if len(tokens) == 0 || slices.Min(tokens) < 0 {
		return nil, malformed(url, fmt.Errorf("%w: want token ids from 0 on", ErrTokens))
	}
	return tokens, nil
}

// endByRendering is the end of messages for servers that render them alone.
func endByRendering(ctx context.Context, e engine, messages []Message, whole []int32) (int, bool, error) {
	old, err := e.render(ctx, messages, false)
	if err != nil {
		return 0, false, err
	}
	end, ok := endOf(old, whole, 0)
	return end, ok, nil
}

// roleAssistant is the role of what a model said.
const roleAssistant = "assistant"

// withoutThoughts are messages as templates render them that leave all thoughts out. White space
// before the words goes with them, which some templates do.
func withoutThoughts(messages []Message) []Message {
	plain := slices.Clone(messages)
	for i := range plain {
		if plain[i].Role != roleAssistant {
			continue
		}
		plain[i].Thoughts = Thoughts{}
		if at := strings.LastIndex(plain[i].Content, events.EndOfThoughts); at >= 0 {
			plain[i].Content = plain[i].Content[at+len(events.EndOfThoughts):]
		}
		plain[i].Content = strings.TrimLeft(plain[i].Content, " \n")
	}
	return plain
}

// answers checks that an answer is one to the prompt, and puts the prompt's tokens into it.
func (r *Response) answers(prompt []int32, most int) error {
	if len(r.Choices) != 1 {
		return fmt.Errorf("%d choices instead of 1", len(r.Choices))
	}
	choice := &r.Choices[0]
	switch {
	case r.PromptTokenIDs != nil && !slices.Equal(r.PromptTokenIDs, prompt):
		return errPrompt(len(r.PromptTokenIDs), len(prompt))
	case choice.TokenIDs == nil && !r.Aborted():
		return fmt.Errorf("%w: the choice has no token_ids", ErrTokens)
	case len(choice.TokenIDs) > most:
		return fmt.Errorf("%w: %d tokens, and at most %d were asked for", ErrTokens, len(choice.TokenIDs), most)
	}
	if err := choice.namesTokens(0); err != nil {
		return err
	}
	r.PromptTokenIDs = prompt
	return nil
}

// namesTokens checks that the log-probabilities are those of the tokens, the first of which has a
// number. Lists of other lengths are refused elsewhere.
func (c *Choice) namesTokens(first int) error {
	for i, entry := range c.Logprobs.Content[:min(len(c.TokenIDs), len(c.Logprobs.Content))] {
		named := strconv.Itoa(int(c.TokenIDs[i]))
		if id, says := strings.CutPrefix(entry.Token, "token_id:"); says && id != named ||
			entry.TokenID != nil && *entry.TokenID != c.TokenIDs[i] {
			return fmt.Errorf("%w: token %d is %s, and its log-probability is of another one", ErrTokens, first+i,
				named)
		}
	}
	return nil
}

// errPrompt: an answer follows another prompt.
func errPrompt(had, given int) error {
	return fmt.Errorf("%w: the server sampled behind another prompt than it was given: %d tokens instead of %d",
		ErrTokens, had, given)
}

// malformed is an answer that cannot be used.
func malformed(url string, err error) *Failure {
	return &Failure{Class: events.ClassBadResponse, Err: fmt.Errorf("answer of %s: %w", url, err)}
}
