package policy

// The kinds of turn.
const (
	kindLook   = "Look around."
	kindAsk    = "Ask the code."
	kindSearch = "Search."
	kindTest   = "Run the tests."
	kindTry    = "Try changes."
	kindAdopt  = "Make the best change."
	kindFinish = "Done."
)

// inclination is the fixed part of a kind's logit. It only says that one looks before one leaps,
// does not give up at once, and may stop when the tests pass at last; where and what to change is
// left open, and the rest is learned.
var inclination = map[string]float64{kindLook: 2, kindAsk: 2, kindSearch: -1, kindTest: 0.5, kindTry: 1,
	kindAdopt: 1, kindFinish: -3}

const (
	// repaired is added to finishing once the tests pass after a change.
	repaired = 5
	// answered is added to looking further once all that a search found is read.
	answered = -3
)

// kinds lists what can be done now.
func (s *state) kinds() []candidate {
	var out []candidate
	situation := s.situation()
	pass := s.kept > 0 && s.passing()
	add := func(kind string) {
		offset := inclination[kind]
		if kind == kindFinish && pass {
			offset += repaired
		}
		if kind == kindLook && len(s.found) > 0 && len(s.unreadFound()) == 0 {
			offset += answered
		}
		out = append(out, candidate{text: kind, offset: offset, features: kindFeatures(kind, situation)})
	}
	if (s.can("list_dir") && len(s.unlisted()) > 0) || (s.can("read_file") && len(s.unread()) > 0) {
		add(kindLook)
	}
	if s.can(askTool) && s.canAsk() {
		add(kindAsk)
	}
	if s.can("grep") && len(s.unread()) > 0 && len(s.searchWords()) > 0 {
		add(kindSearch)
	}
	if s.can("run_terminal_cmd") && len(s.untestedCommands()) > 0 {
		add(kindTest)
	}
	if s.can("search_replace") && s.hasPlaces() && !pass {
		add(kindTry)
		if s.best() >= 0 {
			add(kindAdopt)
		}
	}
	add(kindFinish)
	return out
}

// passing tells whether all that ran on the workspace as it stands passes. The last run alone says
// little: a program that is run without arguments ends well whatever its tests say.
func (s *state) passing() bool {
	for _, r := range s.reference {
		if r.exit != 0 {
			return false
		}
	}
	return len(s.reference) > 0
}

func (s *state) unlisted() (dirs []string) {
	for _, dir := range s.dirs {
		if !s.listed[dir] {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (s *state) unread() []string { return s.unreadOf(s.order) }

func (s *state) unreadOf(names []string) (files []string) {
	for _, name := range names {
		if f := s.files[name]; !f.read && !f.asked {
			files = append(files, name)
		}
	}
	return files
}
