package toolset

import (
	"maps"
)

// State is what tools remember of a rollout from turn to turn, beside the workspace.
type State struct {
	// Shell is where the next command begins, nil where nothing differs from the sandbox's
	// own folder and environment.
	Shell *Shell `json:"shell,omitempty"`
	Todos []Todo `json:"todos,omitempty"`
	// Background: a command or a server was started that may still run.
	Background bool `json:"background,omitempty"`
}

// OrNil is the state as it is recorded: nil where it says nothing, and what is empty left out.
func (s State) OrNil() *State {
	if s.Shell != nil {
		shell := *s.Shell
		if old, ok := shell.Env["OLDPWD"]; ok && old == "" { // every shell that was nowhere before has it
			shell.Env = maps.Clone(shell.Env)
			delete(shell.Env, "OLDPWD")
		}
		if len(shell.Env) == 0 {
			shell.Env = nil
		}
		s.Shell = &shell
		if shell.Dir == "" && shell.Env == nil && len(shell.Unset) == 0 {
			s.Shell = nil
		}
	}
	if s.Shell == nil && len(s.Todos) == 0 && !s.Background {
		return nil
	}
	return &s
}

// Shell is a shell's folder and what its exported variables differ by from those of the sandbox.
type Shell struct {
	Dir   string            `json:"dir,omitempty"` // "" is the workspace
	Env   map[string]string `json:"env,omitempty"`
	Unset []string          `json:"unset,omitempty"` // in order
}

// Todo is an entry of the list that an agent keeps.
type Todo struct {
	ID      string `json:"id"`
	Content string `json:"content"`
	Status  string `json:"status"`
}

// How an answer was found.
const (
	CacheHit    = "hit"    // the same call had it before
	CacheMiss   = "miss"   // the same call had none before
	CacheBypass = "bypass" // nothing known determines it
)
