package runfile

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Bounds of a run's servers.
const (
	maxToolServers = 8
	// maxServed bounds what all servers' tools add to each prompt, in bytes of JSON.
	maxServed = 256 << 10
)

// ChooseTools takes what a server listed as its tools: those that are
// offered, in the server's order.
func ChooseTools(s *toolset.Server, listed []toolset.ServerTool) error {
	s.Tools = listed
	if err := validateServer(*s); err != nil {
		return fmt.Errorf("tools.servers: %.80q: %w", s.Name, err)
	}
	s.Tools = s.Offered()
	return nil
}

// validateServers checks the servers, and that no name is taken.
func validateServers(servers []toolset.Server, taken map[string]bool) (errs []error) {
	if len(servers) > maxToolServers {
		errs = append(errs, fmt.Errorf("tools.servers: %d of them, at most %d", len(servers), maxToolServers))
	}
	names, served := map[string]bool{}, 0
	for i, s := range servers {
		err := validateServer(s)
		if err == nil && names[s.Name] {
			err = fmt.Errorf("two servers have the name")
		}
		names[s.Name] = true
		for _, tool := range s.Offered() {
			called := s.Called(tool.Name)
			if err == nil && taken[called] {
				err = fmt.Errorf("two tools are called %.80q", called)
			}
			taken[called] = true
			encoded, _ := json.Marshal(tool) // it was checked above
			served += len(encoded)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("tools.servers: %d (%.80q): %w", i, s.Name, err))
		}
	}
	if served > maxServed {
		errs = append(errs,
			fmt.Errorf("tools.servers: their tools are described in %d bytes, at most %d: each prompt has them; name fewer in only", served, maxServed))
	}
	return errs
}

// CheckToolServer reports what is wrong with all of a server but its tools.
func CheckToolServer(s toolset.Server) error {
	switch {
	case !toolName.MatchString(s.Name):
		return fmt.Errorf("name: use letters, digits, - and _, at most 64")
	case (len(s.Command) == 0) == (s.URL == ""):
		return fmt.Errorf("give the command that starts it in the sandbox, or the url of a server outside")
	case s.URL == BuiltinEndpoint || s.URL != "" && !validEndpoint(s.URL):
		return fmt.Errorf("url %q: give one such as https://example.com/mcp, without credentials and query",
			withoutSecrets(s.URL))
	case s.Timeout < 0 || time.Duration(s.Timeout) > maxToolTimeout:
		return fmt.Errorf("timeout %s: must be 0 to %s", time.Duration(s.Timeout), maxToolTimeout)
	case s.URL == "":
		return checkCommand(s.Command)
	}
	return nil
}

func validateServer(s toolset.Server) error {
	if err := CheckToolServer(s); err != nil {
		return err
	}
	if len(s.Tools) == 0 || len(s.Tools) > toolset.MaxServerTools {
		return fmt.Errorf("%d tools, want 1 to %d: `rondo run open` lists them; where it cannot, write them down in the run file",
			len(s.Tools), toolset.MaxServerTools)
	}
	there := map[string]bool{}
	for _, t := range s.Tools {
		if there[t.Name] {
			return fmt.Errorf("two tools are called %.80q", t.Name)
		}
		there[t.Name] = true
	}
	for _, name := range s.Only {
		if !there[name] {
			return fmt.Errorf("only: the server has no tool %.80q", name)
		}
	}
	for _, t := range s.Offered() {
		if err := validateServerTool(s, t); err != nil {
			return fmt.Errorf("tool %.80q: %w", t.Name, err)
		}
	}
	return nil
}

func validateServerTool(s toolset.Server, t toolset.ServerTool) error {
	if called := s.Called(t.Name); !toolName.MatchString(called) {
		return fmt.Errorf("the model would know it as %.200q, which chat endpoints do not take: letters, digits, - and _, at most 64; leave it out by only", called)
	}
	if len(t.Description) > maxToolText {
		return fmt.Errorf("description of %d bytes, at most %d: leave it out by only, or write it down shorter",
			len(t.Description), maxToolText)
	}
	return checkArguments(t.Arguments())
}
