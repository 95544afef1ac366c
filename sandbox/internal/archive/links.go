package archive

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const (
	maxLinkHops  = 40 // that one path may pass, as on Linux
	maxLinkSteps = 1_000_000
)

// systemTargets are where a link may lead outside of the tree: a virtual environment
// links to the interpreter.
var systemTargets = []string{"/usr/", "/bin/", "/lib/", "/lib64/", "/opt/", "/dev/null/"}

// dropLinks drops the change's links that lead out of the tree as it will be. They are followed
// one component after the other, as the kernel does: by text alone "a/../b" stays inside, and
// does not where a is a link.
func (s *filtering) dropLinks(snapshot Source) error {
	s.apply()
	for i, e := range s.entries {
		if !s.dropped[i] && !e.deleted && e.mode&fs.ModeSymlink != 0 && s.escapes(e.name) {
			s.dropped[i] = true
			s.found.Links = append(s.found.Links, e.name)
		}
	}
	if len(s.found.Links) > 0 { // what the snapshot has in their places is there again
		if err := s.plant(snapshot); err != nil {
			return err
		}
		s.apply()
	}
	err := s.checkLinks(s.tree, "")
	if s.steps > maxLinkSteps {
		return fmt.Errorf("%w: its links take more than %d steps to follow", ErrTooLarge, maxLinkSteps)
	}
	return err
}

// apply puts the entries of the change that were not dropped into the tree.
func (s *filtering) apply() {
	for i, e := range s.entries {
		if !s.dropped[i] {
			s.tree.put(e)
		}
	}
	for _, e := range s.added {
		s.tree.put(e)
	}
}

// checkLinks refuses the tree when a link of the snapshot leads out of it now.
func (s *filtering) checkLinks(p *node, name string) error {
	if p.kind&fs.ModeSymlink != 0 && s.escapes(name) {
		return fmt.Errorf("%w: %s: the change makes this link lead out of the workspace", ErrInvalid, name)
	}
	for part, child := range p.children {
		if err := s.checkLinks(child, joined(name, part)); err != nil {
			return err
		}
	}
	return nil
}

// escapes follows the link at name.
func (s *filtering) escapes(name string) bool {
	at := []*node{s.tree} // the folder that is reached, and those above it
	hops := 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		if s.steps++; s.steps > maxLinkSteps {
			return true
		}
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if at = at[:len(at)-1]; len(at) == 0 {
				return true
			}
			continue
		}
		next := at[len(at)-1].children[part]
		if next == nil {
			next = &node{}
		}
		if next.kind&fs.ModeSymlink == 0 {
			at = append(at, next)
			continue
		}
		if hops++; hops > maxLinkHops {
			return false // the kernel follows it no further
		}
		inside, absolute := s.enter(next.link)
		switch {
		case absolute:
			at, rest = at[:1], append(inside, rest...)
		case isSystem(next.link):
			return len(rest) > 0 // what comes behind it could climb from there
		case path.IsAbs(next.link):
			return true
		default:
			rest = append(strings.Split(next.link, "/"), rest...)
		}
	}
	return false
}

// enter is the part of an absolute path below the tree's root.
func (s *filtering) enter(target string) ([]string, bool) {
	inside, ok := strings.CutPrefix(target+"/", s.root+"/")
	return strings.Split(inside, "/"), ok && s.root != ""
}

// isSystem reports whether a link's target is a file of the system and nothing but that.
func isSystem(target string) bool {
	return path.Clean(target) == target && slices.ContainsFunc(systemTargets, func(prefix string) bool {
		return strings.HasPrefix(target+"/", prefix)
	})
}
