package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Levels of isolation. Every result says under which it came to be, and a Spec
// says which is the least.
const (
	// IsolationNamespaces is the level that New aims at: namespaces, a root of its own, a system
	// call filter, Landlock where the kernel has it.
	IsolationNamespaces = "namespaces"
	// IsolationLandlock is for root where the kernel refuses namespaces, as most containers do: a
	// user of its own for each sandbox, Landlock rules that leave it the system folders to read and
	// a private folder to write, no sockets. The process table and its command lines can be seen,
	// and the disk limit bounds single files only. Without control groups the buffers of socket
	// pairs count by their number, not by their size.
	IsolationLandlock = "landlock"
	// IsolationNone is a process group in a private folder: nothing protects the host.
	IsolationNone = "none"
)

// Isolations lists the levels, the strongest first.
func Isolations() []string {
	return []string{IsolationNamespaces, IsolationLandlock, IsolationNone}
}

// ErrIsolation says that a level of isolation is below what was demanded.
var ErrIsolation = errors.New("isolation is too weak")

// RequireIsolation answers ErrIsolation, wrapped, where a level is weaker than the
// least one that is demanded. No demand stands for IsolationNamespaces; a level that
// does not exist never suffices.
func RequireIsolation(level, least string) error {
	if least == "" {
		least = IsolationNamespaces
	}
	have, want := slices.Index(Isolations(), level), slices.Index(Isolations(), least)
	if have < 0 || want < 0 || have > want {
		return fmt.Errorf("%w: %q here, and at least %q is demanded", ErrIsolation, level, least)
	}
	return nil
}

// ladder lists the levels that New may try.
func (s Spec) ladder() []string {
	least := s.MinIsolation
	if least == "" && s.AllowInsecure {
		least = IsolationNone
	}
	if least == "" {
		least = IsolationNamespaces
	}
	return Isolations()[:slices.Index(Isolations(), least)+1]
}

func validIsolation(level string) error {
	if level != "" && !slices.Contains(Isolations(), level) {
		return fmt.Errorf("isolation %q: one of %s is possible", level, strings.Join(Isolations(), ", "))
	}
	return nil
}
