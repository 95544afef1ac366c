package tools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Set is the tools that a run's agents have, in a fixed order, as it is part of every prompt.
type Set struct {
	tools  []tool
	byName map[string]*tool // each call of a rollout is looked up in each of its turns
	wall   time.Duration    // of one shell command; 0 is the sandbox's
}

// NewSet gives the tools of valid settings.
func NewSet(settings toolset.Settings) (*Set, error) {
	s := &Set{wall: time.Duration(settings.Tools.CommandTimeout)}
	for _, name := range settings.Tools.Named() {
		if name == SearchTool && !settings.Search {
			continue
		}
		key := name
		if name == "run_terminal_cmd" && settings.Tools.Set != toolset.Composer {
			key = newShellEachTime
		}
		t, ok := table[key]
		if !ok {
			return nil, fmt.Errorf("tools: there is no %q", name)
		}
		t.key, t.Name = key, settings.Tools.Called(name)
		if name == "run_terminal_cmd" {
			t.Limits.Time = cmp.Or(s.wall, sandbox.DefaultWall)
			t.Description = describeNetwork(t.Description, settings.Network)
		}
		s.tools = append(s.tools, t)
	}
	for _, a := range settings.Tools.Add {
		t, err := added(a)
		if err != nil {
			return nil, fmt.Errorf("tools: %s: %w", a.Name, err)
		}
		s.tools = append(s.tools, t)
	}
	for _, server := range settings.Tools.Servers {
		for _, offered := range server.Offered() {
			t, err := served(server, offered)
			if err != nil {
				return nil, fmt.Errorf("tools: %s: %w", server.Called(offered.Name), err)
			}
			s.tools = append(s.tools, t)
		}
	}
	s.byName = make(map[string]*tool, len(s.tools))
	for i := range s.tools {
		if err := json.Unmarshal(s.tools[i].Parameters, &s.tools[i].schema); err != nil {
			return nil, fmt.Errorf("tools: %s: %w", s.tools[i].Name, err)
		}
		s.byName[s.tools[i].Name] = &s.tools[i]
	}
	return s, nil
}

// describeNetwork tells the model what commands can reach.
func describeNetwork(description string, allowed []string) string {
	if len(allowed) == 0 {
		return description
	}
	const most = 20
	list := strings.Join(allowed[:min(len(allowed), most)], ", ")
	if len(allowed) > most {
		list += fmt.Sprintf(" and %d more", len(allowed)-most)
	}
	return strings.Replace(description, "a terminal, network or input", "a terminal or input", 1) +
		" Of the network it can reach these alone, through a proxy that is set up: " + list + "."
}

// Definitions lists the tools.
func (s *Set) Definitions() []Definition {
	list := make([]Definition, len(s.tools))
	for i, t := range s.tools {
		list[i] = t.Definition
	}
	return list
}

func (s *Set) readOnly(call Call) bool {
	t := s.lookup(call.Name)
	return t == nil || t.ReadOnly
}

// IsRemote reports whether a call is done outside of the sandbox: it leaves nothing in it, and done
// again it may answer anything.
func (s *Set) IsRemote(call Call) bool {
	t := s.lookup(call.Name)
	return t != nil && t.Outside
}

func (s *Set) lookup(name string) *tool { return s.byName[name] }

func (s *Set) names() string {
	list := make([]string, len(s.tools))
	for i, t := range s.tools {
		list[i] = t.Name
	}
	return strings.Join(list, ", ")
}
