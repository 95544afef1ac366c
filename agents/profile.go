// Package agents installs coding agents into read-only layers: a folder with the agent's package
// and the interpreter that it needs, which sandboxes mount at Folder beside the task's image.
//
// A Profile says how an agent is installed and started; Shipped has those of known agents. A
// Builder installs one in a sandbox and puts the folder into the store as a Layer, which is named
// by its digest. A Cache gives a layer's folder on this machine.
package agents

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/yamltext"
)

// Folder is where sandboxes mount a layer. Its programs hold this path.
const Folder = runfile.AgentFolder

// Placeholders of a profile's command, environment and files. Whoever starts the agent replaces
// them, by Expand.
const (
	Instruction = runfile.InstructionArgument // of the task
	Model       = "{model}"                   // the name by which the gateway knows the model
	BaseURL     = "{base_url}"                // of the gateway, without /v1
	Key         = "{key}"                     // for the gateway
	Session     = "{session}"                 // a UUID, the same whenever the rollout is started again
)

// Profile says how an agent is installed and started.
type Profile struct {
	Name    string  `json:"name" yaml:"name"`
	Install Install `json:"install" yaml:"install"`
	// Program is the one of the package that Folder/bin has a starter for. A recipe of files brings
	// its own.
	Program string `json:"program,omitempty" yaml:"program"`
	// Command starts the agent; one of its arguments has the placeholder Instruction.
	Command []string          `json:"command" yaml:"command"`
	Env     map[string]string `json:"env,omitempty" yaml:"env"`
	// Files are the agent's settings, by their path below the home folder.
	Files map[string]string `json:"files,omitempty" yaml:"files"`
	// Check is a command that must end with 0 in an empty sandbox with the layer; without it, it is
	// the program with --version.
	Check []string `json:"check,omitempty" yaml:"check"`
	// Help is a command that prints the options which the installed version knows. All of Command
	// must be among them.
	Help []string `json:"help,omitempty" yaml:"help"`
	// Seen are the versions that the profile was tried with.
	Seen []string `json:"seen,omitempty" yaml:"seen"`
}

// Install is the recipe of a layer: one of NPM, PyPI and Files.
type Install struct {
	NPM  string `json:"npm,omitempty" yaml:"npm"`   // a package's name
	PyPI string `json:"pypi,omitempty" yaml:"pypi"` // a package's name
	// Files is a folder, or a tar archive, of this machine that is the layer.
	Files   string `json:"files,omitempty" yaml:"files"`
	Version string `json:"version,omitempty" yaml:"version"`
	// Before is a day, 2026-11-28: what it depends on is taken as it was then, so that a later
	// build is the same.
	Before string `json:"before,omitempty" yaml:"before"`
	// Python are the versions of Python that the package takes, the best first.
	Python []string `json:"python,omitempty" yaml:"python"`
}

// Patterns of what goes into commands and URLs.
var (
	nameForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	npmForm     = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`)
	pypiForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	versionForm = regexp.MustCompile(`^[0-9][0-9A-Za-z.+-]*$`)
	dayForm     = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
	pythonForm  = regexp.MustCompile(`^3\.\d+$`)
	programForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// Validate reports what is wrong with a profile.
func (p Profile) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	in := p.Install
	check(nameForm.MatchString(p.Name), "name %.80q: want lower-case letters, digits, dots and dashes", p.Name)
	ways := 0
	for _, way := range []string{in.NPM, in.PyPI, in.Files} {
		if way != "" {
			ways++
		}
	}
	check(ways == 1, "install: name one of npm, pypi and files")
	check(in.NPM == "" || len(in.NPM) <= 214 && npmForm.MatchString(in.NPM),
		"install.npm %.80q: not a package's name", in.NPM)
	check(in.PyPI == "" || len(in.PyPI) <= 214 && pypiForm.MatchString(in.PyPI),
		"install.pypi %.80q: not a package's name", in.PyPI)
	check(in.Files != "" || len(in.Version) <= 64 && versionForm.MatchString(in.Version),
		"install.version %.80q: name the version to install, for example 1.2.3", in.Version)
	check(in.Before == "" || dayForm.MatchString(in.Before),
		"install.before %.80q: want a day, for example 2026-11-28", in.Before)
	for _, v := range in.Python {
		check(pythonForm.MatchString(v), "install.python %.80q: want versions like 3.12", v)
	}
	check(in.Files != "" || programForm.MatchString(p.Program),
		"program %.80q: name the program of the package that is started", p.Program)
	check(len(p.Command) > 0 && strings.HasPrefix(p.program(), Folder+"/"),
		"command: it must begin with a program below %s/", Folder)
	asks := 0
	for _, argument := range p.Command {
		asks += strings.Count(argument, Instruction)
	}
	check(asks == 1, "command: one argument must have %s, once", Instruction)
	for name := range p.Files {
		check(filepath.IsLocal(name) && path.Clean(name) == name && !strings.Contains(name, `\`),
			"files %.80q: want a path below the home folder", name)
	}
	return errors.Join(errs...)
}

func (p Profile) program() string {
	if len(p.Command) == 0 {
		return ""
	}
	return path.Clean(p.Command[0])
}

// Read reads a profile from a YAML file. A folder of files is found beside it.
func Read(name string) (Profile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return Profile{}, fmt.Errorf("profile: %w", err)
	}
	var p Profile
	if err := yamltext.Strict(text, &p); err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	if f := p.Install.Files; f != "" && !filepath.IsAbs(f) {
		p.Install.Files = filepath.Join(filepath.Dir(name), f)
	}
	if err := p.Validate(); err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	return p, nil
}

// Named gives a shipped profile by NAME or NAME@VERSION. Another version than the pinned one is
// installed with what it depends on as it is today.
func Named(text string) (Profile, error) {
	name, version, found := strings.Cut(text, "@")
	p, known := Shipped()[name]
	if !known {
		all := strings.Join(slices.Sorted(maps.Keys(Shipped())), ", ")
		return Profile{},
			fmt.Errorf("there is no profile %.80q: there are %s, and --profile FILE takes one of your own",
				name, all)
	}
	if found && version != p.Install.Version {
		p.Install.Version, p.Install.Before = version, ""
	}
	if err := p.Validate(); err != nil {
		return Profile{}, fmt.Errorf("%.80s: %w", text, err)
	}
	return p, nil
}

// Expand replaces placeholders in a text, each by its value; what a value holds is left as it is.
func Expand(text string, values map[string]string) string {
	var pairs []string
	for _, placeholder := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, placeholder, values[placeholder])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// options are the options in the profile's command.
func (p Profile) options() (all []string) {
	for _, argument := range p.Command {
		option, _, _ := strings.Cut(argument, "=")
		if strings.HasPrefix(option, "--") && len(option) > 2 {
			all = append(all, option)
		}
	}
	return all
}
