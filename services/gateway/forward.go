package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/storage"
)

// An agent that was lost with its machine is started anew, and asks again. What it asks as it did
// before is answered by the turns that are recorded, so that no token is sampled twice; from the
// first request on that differs, its model answers again. A request is known by the digest of its
// content, in whichever dialect it comes: messages, tools and settings, without what no second
// start repeats, such as clocks, process ids and names of temporary files.

// recording is what is on the log of an agent that is started anew.
type recording struct {
	turns []events.TurnSampled
	// open are the turns that the agent has not come to, by their requests' digests. Equal requests
	// are answered one after the other, in the order in which they were recorded.
	open     map[string][]int
	recalled int
	// sampled is how long the recalled turns were sampled, the last one until then.
	sampled time.Duration
	until   time.Time
}

func newRecording(turns []events.TurnSampled) recording {
	rec := recording{turns: turns, open: map[string][]int{}}
	for i, t := range turns {
		rec.open[t.RequestDigest] = append(rec.open[t.RequestDigest], i)
	}
	return rec
}

// next is the turn that answers a request, nil where none is left.
func (rec *recording) next(digest string) *events.TurnSampled {
	list := rec.open[digest]
	if digest == "" || len(list) == 0 {
		return nil
	}
	rec.open[digest] = list[1:]
	rec.recalled++
	return &rec.turns[list[0]]
}

// left are the turns that the agent has not come to, in their order.
func (rec *recording) left() []int {
	var left []int
	for _, list := range rec.open {
		left = append(left, list...)
	}
	slices.Sort(left)
	return left
}

// take notes how long a recalled turn was sampled. While several were the time counts once.
func (rec *recording) take(t *events.TurnSampled) {
	began, ended := t.StartedAt, t.StartedAt.Add(t.SamplingTime())
	if began.Before(rec.until) {
		began = rec.until
	}
	if ended.After(began) {
		rec.sampled, rec.until = rec.sampled+ended.Sub(began), ended
	}
}

// Resume lets the agent, which is started anew, have the recorded turns of its rollout, whose model
// is a policy. It is called before the first request.
func (a *Agent) Resume(policy string, r *events.Rollout) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns, a.restarts, a.policy, a.recording = len(r.Turns), r.Restarts, policy, newRecording(r.Turns)
}

// recalls reports whether recorded turns are left for the agent to come to.
func (a *Agent) recalls() bool { return a.left() > 0 }

// note digests a live request for the record, and tells its rollout what the agent has not come to.
func (a *Agent) note(ro *rollout, r *ask) {
	if a == nil {
		return
	}
	if r.digest == "" {
		r.digest = a.digests.of(r)
	}
	ro.left = a.left()
}

// recall answers a request that is recorded; nil where the model must. Nothing of it counts again.
func (a *Agent) recall(r *ask) *dialects.Answer {
	r.digest = a.digests.of(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	turn := a.recording.next(r.digest)
	if turn == nil {
		return nil
	}
	a.recording.take(turn)
	a.overflow = 0
	a.fail(nil)
	n := &dialects.Answer{ID: fmt.Sprintf("%s-%d", name(a.run, a.id), turn.Turn),
		Model:   cmp.Or(turn.AnsweredBy(), a.policy),
		Created: turn.StartedAt, Turn: *turn}
	if turn.Reasoning != nil {
		n.Reasoning = turn.Reasoning.Text
	}
	n.Prompt = promptOf(a.recording.turns, turn.Turn)
	return n
}

// left is how many recorded turns the agent has not come to.
func (a *Agent) left() int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.recording.turns) - a.recording.recalled
}

// behind are the recorded turns that the agent has not come to.
func (a *Agent) behind() []int {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recording.left()
}

// promptOf are the tokens of a turn's whole prompt.
func promptOf(turns []events.TurnSampled, turn int) []int32 {
	var path [][]int32
	for i := turn; ; i = *turns[i].After {
		path = append(path, turns[i].PromptDelta)
		if turns[i].NewSegment || turns[i].After == nil {
			break
		}
		path = append(path, turns[*turns[i].After].TokenIDs)
	}
	slices.Reverse(path)
	return slices.Concat(path...)
}

// withoutLeft are a rollout's turns such that those which its agent has left behind can be
// taken out of its samples: what went on behind one of them takes its words over, and
// begins a sample of its own, with all of its prompt. What it says of its tokens' experts
// begins behind the left one's.
func withoutLeft(r *events.Rollout) []events.TurnSampled {
	ended := r.AgentEnded()
	if ended == nil || len(ended.Left) == 0 {
		return r.Turns
	}
	turns, left := slices.Clone(r.Turns), map[int]bool{}
	for _, i := range ended.Left {
		left[i] = true
	}
	for i := range turns {
		t := &turns[i]
		if left[i] || t.After == nil || !left[*t.After] {
			continue
		}
		if !t.NewSegment {
			t.PromptDelta, t.NewSegment = promptOf(r.Turns, i), true
			if slices.ContainsFunc(t.Columns, ofExperts) {
				withoutExperts(t)
			}
		}
		for t.After != nil && left[*t.After] {
			before := r.Turns[*t.After]
			t.Prompt = slices.Concat(before.Prompt, []events.PromptMessage{messageOf(&before)}, t.Prompt)
			t.After = before.After
		}
	}
	return turns
}

// digests makes the digests of requests. Those of messages and of lists of tools are kept, since
// each request repeats those of the ones before it.
type digests struct {
	parts *lru.Cache[[sha256.Size]byte, part]
}

// part is what is known of a message, or of a field such as the list of tools.
type part struct {
	digest [sha256.Size]byte
	// size is how many bytes its texts have that can be masked. whole: they count as they are.
	size  int
	whole bool
	// calls are its calls, and answers is the call that it answers.
	calls   []callID
	answers *callID
}

// callID stands for the id of a call, which may be of any length.
type callID [8]byte

func hashOf(id string) callID {
	sum := sha256.Sum256([]byte(id))
	return callID(sum[:])
}

// Bounds of what is kept of an agent's messages: more of them than a request may have, so that none
// of a long conversation is digested twice, and at most 1 KiB of calls for each.
const (
	keptParts = 16384
	keptCalls = 128
)

// keep keeps a part, unless its calls are too many.
func (d digests) keep(key [sha256.Size]byte, p part) {
	if len(p.calls) <= keptCalls {
		d.parts.Add(key, p)
	}
}

func newDigests() digests {
	parts, err := lru.New[[sha256.Size]byte, part](keptParts)
	if err != nil {
		panic(err) // the size is a constant
	}
	return digests{parts}
}

// sampled are the fields of requests that say how to sample, where the run does not.
var sampledBy = []string{"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
	"frequency_penalty"}

// of is the digest of a request as it came. Calls count by their places and not by their ids, and
// answers to calls of one turn in the order of the calls.
func (d digests) of(r *ask) string {
	sum := sha256.New()
	settings := map[string]any{"max_tokens": r.MaxTokens}
	for _, name := range sampledBy {
		if value, ok := r.requested[name]; ok {
			settings[name] = value
		}
	}
	left := maxMaskedRequest
	for _, field := range slices.Sorted(maps.Keys(r.Forward)) {
		if field != "messages" {
			settings[field] = d.field(r.Forward[field], &left)
		}
	}
	writeValue(sum, settings)
	places := map[callID]int{}
	type answer struct {
		place  int
		digest [sha256.Size]byte
	}
	var answers []answer
	flush := func() {
		slices.SortStableFunc(answers, func(x, y answer) int { return cmp.Compare(x.place, y.place) })
		for _, a := range answers {
			fmt.Fprintf(sum, "%d", a.place)
			sum.Write(a.digest[:])
		}
		answers = answers[:0]
	}
	next := 0
	for _, raw := range r.Messages {
		m := d.message(raw, &left)
		if m.answers != nil {
			place, known := places[*m.answers]
			if !known {
				place = -1
			}
			answers = append(answers, answer{place, m.digest})
			continue
		}
		flush()
		sum.Write(m.digest[:])
		for _, id := range m.calls {
			places[id] = next
			next++
		}
	}
	flush()
	return hex.EncodeToString(sum.Sum(nil))
}

// known is what is kept under a key, where it was masked or not as a request with so many bytes
// left to mask has it, of which it takes its own.
func (d digests) known(key [sha256.Size]byte, left *int) (part, bool) {
	p, ok := d.parts.Get(key)
	if !ok || p.whole != (p.size > *left) {
		return part{}, false
	}
	p.take(left)
	return p, true
}

// take takes the bytes that are masked from those that are left.
func (p *part) take(left *int) {
	if p.whole = p.size > *left; !p.whole {
		*left -= p.size
	}
}

// digestOf sets the digest of a value, whose texts are masked where enough bytes are left.
func (p *part) digestOf(value any, left *int) {
	p.size = maskable(value)
	if p.take(left); !p.whole {
		value = masked(value)
	}
	sum := sha256.New()
	writeValue(sum, value)
	p.digest = [sha256.Size]byte(sum.Sum(nil))
}

// field is the digest of a field, such as the list of tools.
func (d digests) field(raw json.RawMessage, left *int) string {
	key := sha256.Sum256(raw)
	p, ok := d.known(key, left)
	if !ok {
		p.digestOf(jsonOf(raw), left)
		d.keep(key, p)
	}
	return hex.EncodeToString(p.digest[:])
}

// textFields are those of a message that hold text, of whose ends no space counts.
var textFields = []string{"content", "reasoning", "reasoning_content"}

// message is what a message says: its role, its words, and its calls by name and values.
func (d digests) message(raw json.RawMessage, left *int) part {
	key := sha256.Sum256(raw)
	p, ok := d.known(key, left)
	if ok {
		return p
	}
	fields, _ := jsonOf(raw).(map[string]any)
	if id, ok := fields["tool_call_id"].(string); ok && id != "" {
		p.answers = new(hashOf(id))
	}
	delete(fields, "tool_call_id")
	list, _ := fields["tool_calls"].([]any)
	for _, c := range list {
		call, _ := c.(map[string]any)
		id, _ := call["id"].(string)
		p.calls = append(p.calls, hashOf(id))
		delete(call, "id")
		if function, ok := call["function"].(map[string]any); ok {
			if text, ok := function["arguments"].(string); ok {
				function["arguments"] = jsonOf([]byte(text))
			}
		}
	}
	for _, name := range textFields {
		text, isText := wordsOf(fields[name])
		if isText {
			text = strings.TrimSpace(billing.ReplaceAllString(text, ""))
			fields[name] = text
		}
		if !isText {
			hideImages(fields[name])
		}
		if fields[name] == nil || isText && text == "" {
			delete(fields, name)
		}
	}
	p.digestOf(fields, left)
	d.keep(key, p)
	return p
}

// wordsOf is the text of a content: a text, or a list of parts that are text alone.
func wordsOf(content any) (text string, ok bool) {
	if text, ok := content.(string); ok {
		return text, true
	}
	list, ok := content.([]any)
	if !ok {
		return "", false
	}
	var words strings.Builder
	for _, p := range list {
		fields, _ := p.(map[string]any)
		said, ok := fields["text"].(string)
		if !ok {
			return "", false
		}
		words.WriteString(said)
	}
	return words.String(), true
}

// hideImages puts digests in the places of a content's images, which are no text of
// which a part may differ.
func hideImages(content any) {
	list, _ := content.([]any)
	for _, p := range list {
		fields, _ := p.(map[string]any)
		if image, ok := fields["image_url"].(map[string]any); ok {
			url, _ := image["url"].(string)
			image["url"] = storage.Digest([]byte(url))
		}
	}
}

// jsonOf reads a JSON value; what is none is its own text.
func jsonOf(raw []byte) (value any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return string(raw)
	}
	if _, err := d.Token(); err != io.EOF {
		return string(raw)
	}
	return value
}

// writeValue adds a value to a digest, keys in their order.
func writeValue(sum hash.Hash, value any) {
	text, err := json.Marshal(value) // it sorts keys
	if err != nil {
		text = fmt.Append(nil, err)
	}
	sum.Write(text)
}

// maskable is how many bytes the texts of a value have that can be masked.
func maskable(value any) (n int) {
	switch v := value.(type) {
	case string:
		if len(v) <= maxMasked {
			n = len(v)
		}
	case []any:
		for _, e := range v {
			n += maskable(e)
		}
	case map[string]any:
		for _, e := range v {
			n += maskable(e)
		}
	}
	return n
}

// masked is a value whose texts are masked.
func masked(value any) any {
	switch v := value.(type) {
	case string:
		return mask(v)
	case []any:
		for i := range v {
			v[i] = masked(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = masked(v[k])
		}
	}
	return value
}

// billing is a line with which Claude Code begins its system prompt, another in each request.
var billing = regexp.MustCompile(`(?m)^x-anthropic-billing-header:.*\n?`)

// masks are what another start of an agent writes otherwise, and why it is no other request. Each
// is as narrow as what agents and their tools were seen to write; see docs/guide/agents.md. A line
// that has none of some texts is not looked through.
var masks = []struct {
	what  *regexp.Regexp
	by    string
	parts []string
}{
	// UUIDs.
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),
		"<uuid>", []string{"-"}},
	// Moments and dates, in digits and in words, and seconds since 1970.
	{regexp.MustCompile(`\b20\d\d-[01]\d-[0-3]\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d)\b)?)?`),
		"<date>", []string{"20"}},
	{regexp.MustCompile(`\b(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? +)?` +
		`(?:[0-3]?\d +)?(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|` +
		`Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)` +
		`(?: +[0-3]?\d\b,?)?(?: +\d\d:\d\d(?::\d\d)?\b)?(?: +[A-Z]{3,4}\b)?(?: +20\d\d\b)`), "<date>", []string{"20"}},
	{regexp.MustCompile(`\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +[0-3]?\d +[0-2]\d:[0-5]\d\b`),
		"<date>", []string{":"}},
	{regexp.MustCompile(`\b[0-2]\d:[0-5]\d:[0-5]\d(?:[.,]\d+)?\b`), "<time>", []string{":"}},
	{regexp.MustCompile(`\b1[6-9]\d{8}(?:\.\d+|\d{3})?\b`), "<time>", []string{"1"}},
	// How long something took.
	{regexp.MustCompile(`\b(?:\d+m)?\d+\.\d+ ?(?:ns|us|µs|ms|s|secs?|seconds?)\b`), "<time>", []string{"."}},
	{regexp.MustCompile(`\b\d+ ?(?:ns|us|µs|ms)\b`), "<time>", []string{"s"}},
	// Processes, and the ports on which they listen.
	{regexp.MustCompile(`(?i)\b((?:p|pg|pp)id(?:s|\(s\))?|process(?: id)?)\b(["':=# ]{1,4})\d+`),
		"$1$2<id>", []string{"id", "ID", "Id", "rocess"}},
	{regexp.MustCompile(`(?m)^(\[\d+\]) \d+$`), "$1 <id>", []string{"["}},
	{regexp.MustCompile(`\b(localhost|127\.0\.0\.1|0\.0\.0\.0)([: ])\d{4,5}\b`),
		"$1$2<port>", []string{"localhost", "127.0.0.1", "0.0.0.0"}},
	{regexp.MustCompile(`(?i)\b(port)([:= ]{1,2})\d{4,5}\b`), "$1$2<port>", []string{"port", "PORT", "Port"}},
	// Temporary files and folders, objects in memory, and commits, whose ids hold the time.
	{regexp.MustCompile(`(/tmp/)(?:tmp[a-z0-9_]{8}\b|tmp\.\w{6,}|[\w-]+[._-](?:\w*[0-9A-Z]\w*){6,}\b)`),
		"$1<name>", []string{"/tmp/"}},
	{regexp.MustCompile(`\b0x[0-9a-f]{8,16}\b`), "<address>", []string{"0x"}},
	{regexp.MustCompile(`(?m)(^\[[\w./() -]+ |\bcommit |\bHEAD is now at )[0-9a-f]{7,40}\b`),
		"$1<commit>", []string{"[", "commit", "HEAD"}},
	// What agents call their own.
	{regexp.MustCompile(`(?i)\b((?:session|thread|turn|chunk|request|installation)[ _-]?id)(["':= ]{1,4})[\w-]+`),
		"$1$2<id>", []string{"id", "ID", "Id"}},
}

// Bounds of the texts of which something is masked, in bytes, since that takes time: a larger text
// counts as it is, and so does a message or a field with which a request has more. The latter
// follows from the request alone, so that another start's is known by it.
const (
	maxMasked        = 256 << 10
	maxMaskedRequest = 4 << 20
)

// mask takes out of a text what another start writes otherwise.
func mask(text string) string {
	if len(text) > maxMasked {
		return text
	}
	var lines strings.Builder
	for line := range strings.Lines(text) {
		for _, m := range masks {
			if slices.ContainsFunc(m.parts, func(part string) bool { return strings.Contains(line, part) }) {
				line = m.what.ReplaceAllString(line, m.by)
			}
		}
		lines.WriteString(line)
	}
	return lines.String()
}
