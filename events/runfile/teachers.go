package runfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Teacher is a model that says how likely it finds the tokens of the run's scored rollouts: a
// teacher of distillation, or a reference model.
type Teacher struct {
	Name string `json:"name" yaml:"name"`
	// URL is the base URL of its server, for example http://10.0.0.9:8000/v1; "policy": the run's
	// own inference servers; "": somebody outside states the log-probabilities. Keys are in the
	// environment of the service that asks, never here.
	URL string `json:"url,omitempty" yaml:"url"`
	// API is how the server is asked: one of TeacherAPIs; "" is TeacherVLLM.
	API string `json:"api,omitempty" yaml:"api" absent:"vllm"`
	// Model is the name under which the server knows it. Its tokens must be those of the policy.
	Model string `json:"model,omitempty" yaml:"model"`
	// Version names its weights in the facts where the server does not.
	Version string `json:"version,omitempty" yaml:"version"`
	// Hints names the hinter whose spans it scores, each with the hint in the context,
	// instead of whole rollouts.
	Hints string `json:"hints,omitempty" yaml:"hints"`
}

// TeacherPolicy is the URL of a teacher that is the policy itself, with the weights that its
// servers have when they are asked.
const TeacherPolicy = "policy"

// How a teacher's server is asked.
const (
	TeacherVLLM   = "vllm"   // /completions with prompt_logprobs
	TeacherSGLang = "sglang" // /generate with logprob_start_len
)

// TeacherAPIs are all of them.
var TeacherAPIs = []string{TeacherVLLM, TeacherSGLang}

// Bounds of a run's teachers.
const (
	maxTeachers       = 8
	maxTeacherVersion = 128 // bytes
	maxTeacherWait    = 24 * time.Hour
	// DefaultTeacherWait is how long a feed waits for its teachers unless it says otherwise.
	DefaultTeacherWait = 10 * time.Minute
)

// TeacherWaits is how long after a group is complete the feed waits for the
// log-probabilities of its teachers.
func (f Feed) TeacherWaits() time.Duration {
	if f.TeacherWait == 0 {
		return DefaultTeacherWait
	}
	return time.Duration(f.TeacherWait)
}

// Awaits reports whether the feed waits for what is said of rollouts that have their reward.
func (f Feed) Awaits() bool { return len(f.Teachers) > 0 || f.Hints != "" }

// Teacher finds a teacher of the run by its name; the zero one where there is none.
func (c *RunConfig) Teacher(name string) Teacher {
	if i := slices.IndexFunc(c.Teachers, func(t Teacher) bool { return t.Name == name }); i >= 0 {
		return c.Teachers[i]
	}
	return Teacher{}
}

// Hinted are the teachers of a feed that take its hints.
func (c *RunConfig) Hinted(f Feed) (names []string) {
	for _, name := range f.Teachers {
		if c.Teacher(name).Hints != "" {
			names = append(names, name)
		}
	}
	return names
}

// Hinter reports whether a feed or a teacher of the run takes the hints of somebody.
func (c *RunConfig) Hinter(name string) bool {
	return name != "" && (slices.ContainsFunc(c.Teachers, func(t Teacher) bool { return t.Hints == name }) ||
		slices.ContainsFunc(c.Feeds, func(f Feed) bool { return f.Hints == name }))
}

// validateTeachers checks who is asked about rollouts, and which feeds want the answers.
func (c *RunConfig) validateTeachers() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Teachers) <= maxTeachers, "teachers: %d of them, at most %d", len(c.Teachers), maxTeachers)
	seen := map[string]bool{}
	for i, t := range c.Teachers {
		if err := t.validate(); err != nil {
			errs = append(errs, fmt.Errorf("teachers: %d (%.80q): %w", i, t.Name, err))
		}
		check(!seen[t.Name], "teachers: %.80q appears twice", t.Name)
		check(t.URL != TeacherPolicy || len(c.Servers()) > 0 && c.Endpoint != BuiltinEndpoint,
			"teachers: %.80q: url %s: the run names no server of its policy that scores tokens", t.Name, TeacherPolicy)
		seen[t.Name] = true
	}
	for _, f := range c.Feeds {
		for i, name := range f.Teachers {
			check(seen[name], "feeds: %s: teachers: the run has no teacher %.80q", f.Name, name)
			check(!slices.Contains(f.Teachers[:i], name), "feeds: %s: teachers: %.80q appears twice", f.Name, name)
			hints := c.Teacher(name).Hints
			check(hints == "" ||
				hints == f.Hints, "feeds: %s: teachers: %.80q takes the hints of %.80q; set hints: %.80s",
				f.Name, name, hints, hints)
		}
		check(f.Hints == "" ||
			ValidToken(f.Hints), "feeds: %s: hints: name the hinter by letters, digits, - and _, at most 64", f.Name)
		wait := time.Duration(f.TeacherWait)
		check(wait >= 0 && wait <= maxTeacherWait, "feeds: %s: teacher_wait %s: must be 0 to %s", f.Name, wait,
			maxTeacherWait)
		check(wait == 0 || f.Awaits(), "feeds: %s: teacher_wait %s: the feed names no teachers and no hints", f.Name,
			wait)
	}
	return errs
}

func (t Teacher) validate() error {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case !ValidToken(t.Name):
		return errors.New("name: use letters, digits, - and _, at most 64")
	case len(t.Version) > maxTeacherVersion || strings.ContainsFunc(t.Version, control):
		return fmt.Errorf("version: use at most %d bytes, and no control characters", maxTeacherVersion)
	case t.Hints != "" && !ValidToken(t.Hints):
		return errors.New("hints: name the hinter by letters, digits, - and _, at most 64")
	case t.URL == "" && (t.API != "" || t.Model != ""):
		return errors.New("api and model belong to a url; without any somebody outside states the log-probabilities")
	case t.URL == "":
		return nil
	case t.URL == TeacherPolicy && t.Model != "":
		return fmt.Errorf("model: the policy's servers know it already; leave it out beside url %s", TeacherPolicy)
	case t.URL != TeacherPolicy && (t.URL == BuiltinEndpoint || !validEndpoint(t.URL)):
		return fmt.Errorf("url %q: give the base URL of an inference server, for example http://10.0.0.9:8000/v1, without credentials, query and fragment",
			withoutSecrets(t.URL))
	case t.API != "" && !slices.Contains(TeacherAPIs, t.API):
		return fmt.Errorf("api %.80q: must be one of %v", t.API, TeacherAPIs)
	case t.URL == TeacherPolicy:
		return nil
	case t.Model == "" || len(t.Model) > maxModel || strings.ContainsFunc(t.Model, control):
		return errors.New("model: give the name under which the server knows it, at most 256 bytes")
	}
	return nil
}
