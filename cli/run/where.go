package run

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/books"
)

// condition selects rollouts of the books.
type condition func(r books.Rollout) bool

// texts and figures are what conditions look at. A figure that a rollout does not
// have yet fits no condition.
var (
	texts = map[string]func(r books.Rollout) string{
		"rollout":     func(r books.Rollout) string { return r.ID },
		"group":       func(r books.Rollout) string { return r.Group },
		"task":        func(r books.Rollout) string { return r.Task },
		"task_digest": func(r books.Rollout) string { return r.TaskDigest },
		"stop_reason": func(r books.Rollout) string { return r.StopReason },
	}
	figures = map[string]func(r books.Rollout) (float64, bool){
		"reward":         func(r books.Rollout) (float64, bool) { return r.Reward, r.Scored },
		"turns":          func(r books.Rollout) (float64, bool) { return float64(r.Turns), r.Finished },
		"tokens":         func(r books.Rollout) (float64, bool) { return float64(r.Tokens), r.Finished },
		"policy_version": func(r books.Rollout) (float64, bool) { return float64(r.PolicyVersion), true },
	}
	// operators, those first that begin like another one.
	operators = []string{"!=", "<=", ">=", "=", "<", ">"}
)

// parseWhere reads "task=fix-*,reward>=0.9,after=1200": all of the conditions must hold.
func parseWhere(where string) ([]condition, error) {
	var all []condition
	for text := range strings.SplitSeq(where, ",") {
		c, err := parseCondition(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--where %q: %w", where, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func parseCondition(text string) (condition, error) {
	field, operator, value := split(text)
	if operator == "" || value == "" {
		return nil, fmt.Errorf("%q is not a condition: write for example task=fix-tests or reward>=0.9", text)
	}
	if get, ok := texts[field]; ok {
		return textCondition(get, field, operator, value)
	}
	if get, ok := figures[field]; ok {
		return figureCondition(get, field, operator, value)
	}
	if field == "before" || field == "after" {
		return sequenceCondition(field, operator, value)
	}
	return nil, fmt.Errorf("there is no %q: use %s, before or after", field, strings.Join(fieldNames(), ", "))
}

// split cuts a condition at its first operator.
func split(text string) (field, operator, value string) {
	at := strings.IndexAny(text, "=!<>")
	if at < 0 {
		return text, "", ""
	}
	for _, o := range operators {
		if rest, ok := strings.CutPrefix(text[at:], o); ok {
			return strings.TrimSpace(text[:at]), o, strings.TrimSpace(rest)
		}
	}
	return text, "", ""
}

func fieldNames() []string {
	var names []string
	for name := range texts {
		names = append(names, name)
	}
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// textCondition compares with a pattern in which * stands for anything.
func textCondition(get func(books.Rollout) string, field, operator, pattern string) (condition, error) {
	if operator != "=" && operator != "!=" {
		return nil, fmt.Errorf("%s %s: a text is = or != a pattern such as fix-*", field, operator)
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%s: the pattern %q is not well formed", field, pattern)
	}
	return func(r books.Rollout) bool {
		text := get(r)
		ok, _ := path.Match(pattern, text) // its form was checked
		return (ok || text == pattern) == (operator == "=")
	}, nil
}

func figureCondition(get func(books.Rollout) (float64, bool), field, operator, value string) (condition, error) {
	bound, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(bound) {
		return nil, fmt.Errorf("%s: %q is no number", field, value)
	}
	return func(r books.Rollout) bool {
		v, ok := get(r)
		return ok && compares(cmp.Compare(v, bound), operator)
	}, nil
}

func compares(order int, operator string) bool {
	switch operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// sequenceCondition is about where on the log the rollout was scored or failed, or started
// while it has no outcome.
func sequenceCondition(field, operator, value string) (condition, error) {
	bound, err := strconv.ParseUint(value, 10, 64)
	if err != nil || operator != "=" {
		return nil, fmt.Errorf("%s%s%s: write %s=SEQUENCE, a place on the run's log", field, operator, value, field)
	}
	return func(r books.Rollout) bool {
		if field == "before" {
			return r.Seq < bound
		}
		return r.Seq > bound
	}, nil
}

// selected are the rollouts for which all conditions hold.
func selected(l *books.Run, where []condition) []books.Rollout {
	list := []books.Rollout{}
	for r := range l.All() {
		if !slices.ContainsFunc(where, func(c condition) bool { return !c(r) }) {
			list = append(list, r)
		}
	}
	return list
}
