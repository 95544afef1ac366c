package verifier

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Protected is what no agent may change of any task: what interpreters and test programs run of
// their own accord, their settings, and compiled code, which they prefer to the source that it
// pretends to be made of. Of a repository an agent may change what a commit changes. A task that
// needs one of them takes it back with "!".
var Protected = []string{
	"**/conftest.py", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth", "**/__pycache__/**", "**/*.pyc",
	"**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml", "**/tox.ini",
	"**/setup.cfg", "**/pyproject.toml",
	// Python looks for them in any case
	"**/*.[dD][iI][sS][tT]-[iI][nN][fF][oO]/**", "**/*.[eE][gG][gG]-[iI][nN][fF][oO]/**", "**/*.egg-link",
	"**/.git", "!**/.git/objects/**", "!**/.git/refs/**", "!**/.git/logs/**", "!**/.git/HEAD", "!**/.git/ORIG_HEAD",
	"!**/.git/index", "!**/.git/packed-refs",
	"!**/.git/COMMIT_EDITMSG", "**/.git/objects/info/**",
}

// Bounds of a list of patterns.
const (
	maxPatterns = 500
	maxPattern  = 500 // bytes
)

// CheckPatterns says what is wrong with a task's list of protected paths.
func CheckPatterns(patterns []string) error {
	if len(patterns) > maxPatterns {
		return fmt.Errorf("%d patterns, the limit is %d", len(patterns), maxPatterns)
	}
	for _, pattern := range patterns {
		if err := checkPattern(strings.TrimLeft(pattern[:min(len(pattern), 1)], "!+") +
			pattern[min(len(pattern), 1):]); err != nil {
			return fmt.Errorf("%.100q: %w", pattern, err)
		}
	}
	return nil
}

func checkPattern(pattern string) error {
	switch {
	case pattern == "" || len(pattern) > maxPattern:
		return fmt.Errorf("want 1 to %d bytes", maxPattern)
	case path.Clean(pattern) != pattern || path.IsAbs(pattern) || pattern == "." ||
		strings.HasPrefix(pattern, "../") || pattern == "..":
		return errors.New(`want a clean path below the workspace, such as "tests/**"`)
	}
	_, err := path.Match(pattern, "")
	return err
}

// Protects reports whether a path is protected by Protected or a task's own patterns, of which the
// last that matches counts. A pattern is a path of which each part is one of path.Match, or "**"
// for any number of them; a folder's pattern is for all below it. With "!" before it it takes
// paths back. Patterns with "+" before them are what is an agent's to change: where there is one,
// all else is protected. What such a pattern names in full, without a wildcard, is the agent's
// whatever else protects it.
func Protects(patterns []string) func(name string) bool {
	type rule struct {
		parts []string
		free  bool
	}
	var rules []rule
	for _, pattern := range ordered(patterns) {
		pattern, free := strings.CutPrefix(pattern, "!")
		rules = append(rules, rule{strings.Split(pattern, "/"), free})
	}
	return func(name string) bool {
		parts := strings.Split(name, "/")
		for i := len(rules) - 1; i >= 0; i-- {
			if matches(rules[i].parts, parts) {
				return !rules[i].free
			}
		}
		return false
	}
}

// ordered are Protected and a task's own patterns, without "+", in the order in which they count.
func ordered(patterns []string) []string {
	var begin, own, full []string
	for _, pattern := range patterns {
		changed, ok := strings.CutPrefix(pattern, "+")
		if !ok {
			own = append(own, pattern)
			continue
		}
		if begin == nil {
			begin = []string{"**"}
		}
		begin = append(begin, "!"+changed)
		if !strings.ContainsAny(changed, `*?[\`) {
			full = append(full, "!"+changed)
		}
	}
	return slices.Concat(begin, Protected, own, full)
}

// matches reports whether a pattern matches a path or a folder above it. Like a shell it tries "**"
// for as few parts as possible first, and goes back to the last one only, which is enough.
func matches(pattern, name []string) bool {
	star, resume := -1, 0
	for p, n := 0, 0; ; {
		switch {
		case p == len(pattern):
			return true
		case pattern[p] == "**":
			star, resume = p, n
			p++
			continue
		case n < len(name):
			if ok, _ := path.Match(pattern[p], name[n]); ok {
				p, n = p+1, n+1
				continue
			}
		}
		if star < 0 || resume >= len(name) {
			return false
		}
		resume++
		p, n = star+1, resume
	}
}
