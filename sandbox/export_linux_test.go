package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
)

// RefuseNamespaces makes this process one to which the kernel refuses namespaces.
func RefuseNamespaces() {
	if err := jail.Seal(1<<15, 1<<40, false); err != nil {
		panic(err)
	}
}

// NewAt makes a sandbox of one level of isolation, where New might give another.
func NewAt(ctx context.Context, level string, spec Spec) (*Sandbox, error) {
	spec = spec.withDefaults()
	return create(ctx, spec, level)
}

// WithoutCgroups makes sandboxes limit themselves for the time of a test.
func WithoutCgroups(t *testing.T) {
	found := findPlacement
	findPlacement = func() placement { return placement{version: "none"} }
	t.Cleanup(func() { findPlacement = found })
}

// GroupsOf lists the control groups that an owner made and that are still there.
func GroupsOf(owner int) []string {
	var found []string
	for _, parent := range findPlacement().parents {
		groups, _ := filepath.Glob(filepath.Join(parent, fmt.Sprintf("%s-%s-%d-*", groupPrefix, processNamespace(), owner)))
		found = append(found, groups...)
	}
	return found
}

// FewGoPackages lets a test fill a build cache quickly.
func FewGoPackages(t *testing.T) {
	all := goPackages
	goPackages = []string{"fmt", "testing"}
	t.Cleanup(func() { goPackages = all })
}
