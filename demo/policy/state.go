package policy

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// state is everything the policy knows: a fold of the conversation, message by message.
type state struct {
	tools map[string]bool // on offer
	turn  int             // answers given so far

	words map[string]bool // of the instruction
	told  []string        // commands that the instruction names
	need  string          // what the instruction asks for, as a question to a search by meaning

	dirs    []string // known, in order of discovery
	listed  map[string]bool
	files   map[string]*file
	order   []string
	grepped map[string]bool
	asked   bool     // by meaning
	found   []string // the files of the answer, best first; they stand in front of the order

	runs      []run
	stays     *run            // of the applied change, for the case that it stays
	reference map[string]*run // command -> its run on the workspace as it stands
	tries     []try
	tried     map[uint64]int // change -> index into tries
	kept      int            // changes that stayed
	applied   int            // index of the try that is in the workspace and may yet be undone, or -1
	failWords map[string]bool

	calls map[string]*Function // asked for and not answered yet
}

// run is one run of a test command.
type run struct {
	command   string
	exit      int
	failures  int // lines that report a failure
	lines     int
	signature uint64
}

type outcome int

const (
	untested outcome = iota
	passed
	improved    // fewer failures than before the change
	unmoved     // the very same output: the change does not matter to the tests
	otherOutput // as many failures, but other output
	worse
)

// try is a change that was made, and what the tests said of it.
type try struct {
	path    string
	change  replace
	before  []string
	outcome outcome
	kept    int // changes that stayed before it
	key     uint64
	stayed  bool
}

const (
	maxFiles     = 64
	maxFileLines = 400
	maxFileBytes = 64 << 10
	maxTries     = 1024
	maxLine      = 240 // longer lines are not mutated
)

func newState(tools []string) *state {
	s := &state{
		tools: map[string]bool{}, words: map[string]bool{}, listed: map[string]bool{}, files: map[string]*file{},
		grepped:   map[string]bool{},
		reference: map[string]*run{}, tried: map[uint64]int{}, applied: -1, failWords: map[string]bool{},
		calls: map[string]*Function{},
	}
	for _, name := range tools {
		s.tools[name] = true
	}
	s.addDir(".")
	return s
}

func (s *state) can(tool string) bool { return s.tools[tool] }

// observe folds one message.
func (s *state) observe(m *Message) {
	switch m.Role {
	case "user":
		addWords(s.words, m.Content)
		if s.need == "" {
			s.need = needOf(m.Content)
		}
		s.told = append(s.told, toldCommands(m.Content)...)
	case "assistant":
		s.turn++
		for i := range m.ToolCalls {
			s.calls[m.ToolCalls[i].ID] = &m.ToolCalls[i].Function
		}
	case "tool":
		call := s.calls[m.ToolCallID]
		if call == nil {
			return
		}
		delete(s.calls, m.ToolCallID)
		s.observeResult(call, m.Content)
	}
}

// arguments has the arguments of all the tools; a call uses some of them.
type arguments struct {
	TargetFile      *string `json:"target_file,omitempty"`
	TargetDirectory *string `json:"target_directory,omitempty"`
	Pattern         *string `json:"pattern,omitempty"`
	Path            *string `json:"path,omitempty"`
	FilePath        *string `json:"file_path,omitempty"`
	OldString       *string `json:"old_string,omitempty"`
	NewString       *string `json:"new_string,omitempty"`
	Contents        *string `json:"contents,omitempty"`
	Command         *string `json:"command,omitempty"`
	Query           *string `json:"query,omitempty"`
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func (s *state) observeResult(call *Function, result string) {
	var a arguments
	if json.Unmarshal([]byte(call.Arguments), &a) != nil {
		return
	}
	switch call.Name {
	case "list_dir":
		s.observeListing(cleanPath(text(a.TargetDirectory)), result)
	case "read_file":
		s.observeContent(cleanPath(text(a.TargetFile)), result)
	case "grep":
		s.grepped[text(a.Pattern)] = true
		s.observeMatches(result)
	case askTool:
		s.observeFound(result)
	case "search_replace":
		s.observeEdit(cleanPath(text(a.FilePath)), text(a.OldString), text(a.NewString), result)
	case "write":
		if f := s.addFile(cleanPath(text(a.FilePath))); f != nil {
			f.hold(splitLines(text(a.Contents)))
		}
	case "run_terminal_cmd":
		s.observeRun(text(a.Command), result)
	}
}

func (s *state) observeListing(dir, result string) {
	s.listed[dir] = true
	for entry := range strings.SplitSeq(result, "\n") {
		entry = strings.TrimSpace(entry)
		if entry == "" || strings.ContainsAny(entry, " \t:") || strings.HasPrefix(entry, ".") {
			continue
		}
		if name, isDir := strings.CutSuffix(entry, "/"); isDir {
			s.addDir(path.Join(dir, name))
		} else {
			s.addFile(path.Join(dir, entry))
		}
	}
}

var numberedLine = regexp.MustCompile(`^\s*(\d+)\|(.*)$`)

func (s *state) observeContent(name, result string) {
	f := s.addFile(name)
	if f == nil {
		return
	}
	f.asked = true
	var lines []string
	for line := range strings.SplitSeq(result, "\n") {
		m := numberedLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if n, err := strconv.Atoi(m[1]); err != nil || n != len(lines)+1 || n > maxFileLines {
			break
		}
		lines = append(lines, m[2])
	}
	if lines != nil {
		f.hold(lines)
	}
}

func (s *state) observeMatches(result string) {
	for line := range strings.SplitSeq(result, "\n") {
		if name, rest, ok := strings.Cut(line, ":"); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' &&
			!strings.Contains(name, " ") {
			s.addFile(cleanPath(name))
		}
	}
}

// observeEdit follows an edit in the file that the policy has in mind. The edit counts as made when
// its old text is there just once.
func (s *state) observeEdit(name, old, replacement, result string) {
	f := s.files[name]
	if f == nil || !f.read {
		return
	}
	whole := f.text()
	if strings.Count(whole, old) != 1 || strings.HasPrefix(strings.ToLower(result), "error") {
		f.read, f.asked = false, false // what we have in mind is not what is there: read it again
		return
	}
	before := f.lines
	f.hold(splitLines(strings.Replace(whole, old, replacement, 1)))
	if f.read && len(s.tries) < maxTries {
		s.recordEdit(name, before, f.lines)
	}
}

// recordEdit notes that a file changed: either the applied change was undone, or it
// stays and a new one is tried.
func (s *state) recordEdit(name string, before, after []string) {
	change := difference(before, after)
	if s.applied >= 0 {
		last := s.tries[s.applied]
		undo := last.change.invert(last.before)
		if last.path == name && undo.start == change.start && undo.count == change.count &&
			slices.Equal(undo.with, change.with) {
			s.applied, s.stays = -1, nil
			return
		}
		s.keep()
	}
	s.stays = nil
	key := s.changeKey(name, change, before)
	if i, again := s.tried[key]; again {
		s.applied = i
		return
	}
	s.tried[key] = len(s.tries)
	s.applied = len(s.tries)
	s.tries = append(s.tries, try{path: name, change: change, before: before, kept: s.kept, key: key})
}

// keep makes the applied change, if there is one, part of the workspace on which
// further changes are tried.
func (s *state) keep() {
	if s.applied < 0 {
		return
	}
	s.kept++
	s.tries[s.applied].stayed = true
	s.applied = -1
	s.reference = map[string]*run{}
	if s.stays != nil {
		s.reference[s.stays.command] = s.stays
	}
	s.stays = nil
}

// changeKey identifies a change: nothing is tried twice on the same state.
func (s *state) changeKey(name string, r replace, lines []string) uint64 {
	h := hashInt(hashString(hashSeed, name), s.kept)
	h = hashInt(h, r.start)
	for _, line := range lines[r.start : r.start+r.count] {
		h = hashString(h, line)
	}
	h = hashInt(h, r.count)
	for _, line := range r.with {
		h = hashString(h, line)
	}
	return h
}

var exitCode = regexp.MustCompile(`(?m)^exit code: (-?\d+)\s*$`)

func (s *state) observeRun(text, result string) {
	codes := exitCode.FindAllStringSubmatch(result, -1)
	r := run{command: text, exit: -1}
	if len(codes) > 0 {
		r.exit, _ = strconv.Atoi(codes[len(codes)-1][1])
	}
	failing := r.digest(result)
	s.runs = append(s.runs, r)
	if s.applied >= 0 {
		s.stays = &r
		s.tries[s.applied].outcome = judge(&r, s.reference[text])
		return
	}
	s.reference[text] = &r
	if r.exit != 0 {
		addWords(s.failWords, failing)
	}
}

var (
	failureLine = regexp.MustCompile(`(?i)(\bfail|not ok|\berror|mismatch|\bwrong|\bbad\b|✗|✘|panic|unexpected)`)
	timing      = regexp.MustCompile(`\d+(\.\d+)?m?s\b`)
)

// digest fills in what is kept of an output, and returns the part of it that speaks of failures.
func (r *run) digest(output string) string {
	var failing strings.Builder
	follow := 0
	r.signature = hashSeed
	for line := range strings.SplitSeq(output, "\n") {
		r.lines++
		r.signature = hashString(r.signature, timing.ReplaceAllString(line, ""))
		if failureLine.MatchString(line) {
			r.failures++
			follow = 3 // details often stand below
		}
		if follow > 0 && failing.Len() < 4096 {
			failing.WriteString(line)
			failing.WriteByte('\n')
			follow--
		}
	}
	return failing.String()
}

func judge(now, before *run) outcome {
	switch {
	case now.exit == 0 && (before == nil || before.exit != 0):
		return passed
	case before == nil:
		return untested
	case now.signature == before.signature:
		return unmoved
	case now.failures < before.failures && now.failures > 0 && now.lines >= before.lines/2:
		return improved
	case now.failures <= before.failures && now.exit == before.exit:
		return otherOutput
	}
	return worse
}

func (s *state) addDir(name string) {
	if len(s.dirs) < maxFiles && !slices.Contains(s.dirs, name) {
		s.dirs = append(s.dirs, name)
	}
}

func (s *state) addFile(name string) *file {
	if f := s.files[name]; f != nil {
		return f
	}
	if len(s.files) >= maxFiles || name == "" {
		return nil
	}
	f := &file{path: name}
	s.files[name] = f
	s.order = append(s.order, name)
	return f
}

func (s *state) eachFile(visit func(*file)) {
	for _, name := range s.order {
		visit(s.files[name])
	}
}

func cleanPath(name string) string { return path.Clean(strings.TrimPrefix(name, "./")) }

func splitLines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
