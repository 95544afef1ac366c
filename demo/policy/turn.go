package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"
)

// candidate is one thing that can be decided. Its text goes into the answer, its
// action token in front of it.
type candidate struct {
	text     string
	offset   float64 // fixed part of the logit: the uniform prior
	features []feature
	index    int
}

// chooser picks one of the candidates; -1 gives up. Sampling and replaying a turn
// differ only in the chooser.
type chooser func(candidates []candidate) int

const (
	triesPerTurn   = 2  // more would repair more before anything is learnt, and each costs a run of the tests
	filesPerTurn   = 16 // read at once
	maxPlaces      = 192
	maxSearchWords = 8
	answerBudget   = 8192 // bytes of an answer, unless the request sets a smaller limit
)

// turn is an answer in the making. It decides on a fork of the state, in which the edits that it
// asks for have already happened.
type turn struct {
	s      *state
	choose chooser
	lines  []string
	calls  []ToolCall
	size   int      // bytes of the answer so far
	budget int      // and about how many it may have
	change []uint64 // for each decision, the key of the change that it decided on, or 0
}

// answer makes the next turn of the conversation. ok is false when the chooser gave up.
func (s *state) answer(choose chooser, budget int) (t *turn, ok bool) {
	t = &turn{s: s.fork(), choose: choose, budget: budget}
	t.s.keep()
	return t, t.run()
}

func (t *turn) content() string { return strings.Join(t.lines, "\n") }

func (s *state) fork() *state {
	f := *s
	f.files = make(map[string]*file, len(s.files))
	for name, old := range s.files {
		c := *old
		f.files[name] = &c
	}
	f.tries, f.tried = slices.Clone(s.tries), maps.Clone(s.tried)
	f.reference = maps.Clone(s.reference)
	f.runs = slices.Clone(s.runs)
	return &f
}

func (t *turn) run() bool {
	kind := t.decide(t.s.kinds())
	if kind == nil {
		return false
	}
	switch kind.text {
	case kindLook:
		t.look()
	case kindAsk:
		t.ask()
	case kindSearch:
		return t.search()
	case kindTest:
		return t.test()
	case kindTry:
		return t.try()
	case kindAdopt:
		return t.adopt()
	}
	return true
}

func (t *turn) decide(candidates []candidate) *candidate {
	candidates = distinct(candidates)
	if len(candidates) == 0 {
		return nil
	}
	i := t.choose(candidates)
	if i < 0 || i >= len(candidates) {
		return nil
	}
	t.lines, t.change = append(t.lines, candidates[i].text), append(t.change, 0)
	t.size += len(candidates[i].text) + 2
	return &candidates[i]
}

// distinct drops candidates whose token is taken, so that a token says which one was meant.
func distinct(candidates []candidate) []candidate {
	seen := make(map[int32]bool, len(candidates))
	out := candidates[:0]
	for _, c := range candidates {
		if token := actionToken(c.text); !seen[token] {
			seen[token] = true
			out = append(out, c)
		}
	}
	return out
}

// look lists every directory and reads every file that is known and was not looked at yet, all at
// once. What a search found comes first.
func (t *turn) look() {
	calls := 0
	read := func(names []string) {
		for _, name := range names {
			if calls++; calls <= filesPerTurn {
				t.call("read_file", arguments{TargetFile: &name})
			}
		}
	}
	found := t.s.unreadFound()
	if t.s.can("read_file") {
		read(found)
	}
	if t.s.can("list_dir") {
		for _, dir := range t.s.unlisted() {
			if calls++; calls <= filesPerTurn {
				t.call("list_dir", arguments{TargetDirectory: &dir})
			}
		}
	}
	if t.s.can("read_file") {
		read(t.s.unread()[len(found):])
	}
}

func (t *turn) call(tool string, a arguments) {
	text, err := json.Marshal(a)
	if err != nil {
		return // strings always marshal
	}
	id := fmt.Sprintf("call_%d_%d", t.s.turn, len(t.calls))
	t.size += len(id) + len(tool) + len(text) + 3
	t.calls = append(t.calls, ToolCall{ID: id, Type: "function",
		Function: Function{Name: tool, Arguments: string(text)}})
}

// searchWords are the longest words of the failing output, or of the
// instruction before there is one.
func (s *state) searchWords() []string {
	source := s.failWords
	if len(source) == 0 {
		source = s.words
	}
	var words []string
	for word := range source {
		if len(word) >= 4 && !s.grepped[word] {
			words = append(words, word)
		}
	}
	sort.Slice(words, func(i, j int) bool {
		if len(words[i]) != len(words[j]) {
			return len(words[i]) > len(words[j])
		}
		return words[i] < words[j]
	})
	return words[:min(len(words), maxSearchWords)]
}

func (t *turn) search() bool {
	var candidates []candidate
	for _, word := range t.s.searchWords() {
		candidates = append(candidates, candidate{text: "Search for " + word,
			features: []feature{hashed("search word", word, 1)}})
	}
	chosen := t.decide(candidates)
	if chosen == nil {
		return false
	}
	pattern, here := strings.TrimPrefix(chosen.text, "Search for "), "."
	t.call("grep", arguments{Pattern: &pattern, Path: &here})
	return true
}

// untestedCommands are the commands that have not run on the workspace as it is.
func (s *state) untestedCommands() []command {
	return slices.DeleteFunc(s.commands(), func(c command) bool { return s.reference[c.guarded()] != nil })
}

func (t *turn) test() bool {
	c := t.chooseCommand(t.s.untestedCommands())
	if c == nil {
		return false
	}
	t.runCommand(c)
	return true
}

func (t *turn) runCommand(c *command) {
	text := c.guarded()
	t.call("run_terminal_cmd", arguments{Command: &text})
}

func (t *turn) chooseCommand(commands []command) *command {
	candidates := make([]candidate, len(commands))
	for i, c := range commands {
		candidates[i] = candidate{text: "Run `" + c.text + "`", offset: c.prior(),
			features: t.s.commandFeatures(c, i), index: i}
	}
	chosen := t.decide(candidates)
	if chosen == nil {
		return nil
	}
	return &commands[chosen.index]
}

// currentCommand is the one that failed last on the workspace as it stands, for that is what
// has to pass. Before any has failed one is chosen among those that were not run. nil with ok:
// there is nothing to run.
func (t *turn) currentCommand() (c *command, ok bool) {
	commands := t.s.commands()
	if len(commands) == 0 || !t.s.can("run_terminal_cmd") {
		return nil, true
	}
	last := -1
	for _, run := range slices.Backward(t.s.runs) {
		for k := range commands {
			if commands[k].guarded() != run.command {
				continue
			}
			if reference := t.s.reference[run.command]; reference == nil || reference.exit != 0 {
				return &commands[k], true
			}
			last = max(last, k)
		}
	}
	if open := t.s.untestedCommands(); len(open) > 0 {
		c = t.chooseCommand(open)
		return c, c != nil
	}
	return &commands[max(last, 0)], true
}

// try makes changes one after the other, runs the tests after each, and undoes it.
func (t *turn) try() bool {
	c, ok := t.currentCommand()
	if !ok {
		return false
	}
	if c == nil { // nothing to run: the change stays
		_, ok = t.tryOne()
		return ok
	}
	for k := range triesPerTurn {
		if k > 0 && t.size+t.size/k > t.budget {
			break // another one would not fit
		}
		done, ok := t.tryOne()
		if !ok {
			return false
		}
		if !done {
			break
		}
		t.runCommand(c)
		t.undo()
	}
	return true
}

// tryOne decides where and what to change. done is false when nothing is left to try.
func (t *turn) tryOne() (done, ok bool) {
	places := t.s.places()
	if len(places) == 0 {
		return false, true
	}
	place := t.decide(places)
	if place == nil {
		return false, false
	}
	f, line := t.s.place(place)
	mutations, candidates := t.s.changes(f, line)
	chosen := t.decide(candidates)
	if chosen == nil {
		return false, false
	}
	t.edit(f, mutations[chosen.index].change)
	if t.s.applied >= 0 {
		key := t.s.tries[t.s.applied].key
		t.change[len(t.change)-2], t.change[len(t.change)-1] = key, key
	}
	return true, true
}

// edit asks for a change and carries it out in the forked state.
func (t *turn) edit(f *file, change replace) {
	old, replacement, ok := change.strings(f.lines)
	if !ok {
		return
	}
	t.call("search_replace", arguments{FilePath: &f.path, OldString: &old, NewString: &replacement})
	before := f.lines
	f.set(change.apply(before))
	t.s.recordEdit(f.path, before, f.lines)
}

func (t *turn) undo() {
	if t.s.applied < 0 {
		return
	}
	last := t.s.tries[t.s.applied]
	if f := t.s.files[last.path]; f != nil && f.read {
		t.edit(f, last.change.invert(last.before))
	}
}

// best is the try worth making for good: one that made the tests pass, else one with fewer
// failures; -1 when there is none.
func (s *state) best() int {
	found := -1
	for i := range s.tries {
		t := &s.tries[i]
		if t.kept != s.kept || t.outcome != passed && t.outcome != improved ||
			!slices.Equal(s.files[t.path].lines, t.before) {
			continue
		}
		if found < 0 || t.outcome == passed && s.tries[found].outcome == improved {
			found = i
		}
	}
	return found
}

// adopt makes the best change again, to stay, and runs the tests.
func (t *turn) adopt() bool {
	best := t.s.tries[t.s.best()]
	t.edit(t.s.files[best.path], best.change)
	c, ok := t.currentCommand()
	if ok && c != nil {
		t.runCommand(c)
	}
	return ok
}

// excluded files are never changed: tests, and programs that run them.
func (s *state) excluded(f *file) bool {
	return !f.read || f.language() == prose || looksLikeTest(f.path) || strings.HasPrefix(path.Base(f.path), ".")
}
