// Package redact finds secrets in texts, by the rules of gitleaks.
package redact

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/redact/rules"
)

// window is what is searched at once, as some rules take the square of it; overlap is more than a
// PEM key of 8192 bits has.
const window, overlap = 16 << 10, 8 << 10

// Span is a part of a text, in bytes, that is a secret by a rule.
type Span struct {
	Start, End int
	Rule       string
}

// Find finds every occurrence of every secret of a text, in order, those that touch each other
// as one. What a rule knows by the words around it is found where it stands without them, too.
// It takes milliseconds for 160 KiB, or most of a minute where the text is made for that:
// bound it by the context.
func Find(ctx context.Context, text string) ([]Span, error) {
	secrets, err := Secrets(ctx, text)
	if err != nil {
		return nil, err
	}
	return Occurrences(ctx, text, secrets)
}

// Secrets are the secrets of a text, with the rule by which each is one. It takes as long as Find.
func Secrets(ctx context.Context, text string) (map[string]string, error) {
	set, err := rules.Default()
	if err != nil {
		return nil, err
	}
	ruleOf := map[string]string{}
	for _, part := range windows(text) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, f := range set.Find(part) {
			if rule, known := ruleOf[f.Secret]; f.Secret != "" && (!known || f.Rule < rule) {
				ruleOf[f.Secret] = f.Rule
			}
		}
	}
	return ruleOf, nil
}

// Occurrences finds every place of secrets in a text, of this text or of others, in order, those
// that touch each other as one.
func Occurrences(ctx context.Context, text string, ruleOf map[string]string) ([]Span, error) {
	var all []Span
	for secret, rule := range ruleOf {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for at := 0; ; {
			next := strings.Index(text[at:], secret)
			if next < 0 {
				break
			}
			all = append(all, Span{at + next, at + next + len(secret), rule})
			at += next + 1
		}
	}
	return merged(all), nil
}

// windows are parts of a text that overlap, most often at the end of a line.
func windows(text string) (parts []string) {
	for len(text) > window {
		const last = window * 3 / 4
		end := window
		if line := strings.LastIndexByte(text[last:end], '\n'); line >= 0 {
			end = last + line + 1
		}
		parts = append(parts, text[:end])
		text = text[end-overlap:]
	}
	return append(parts, text)
}

func merged(all []Span) (apart []Span) {
	slices.SortFunc(all, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End), strings.Compare(a.Rule, b.Rule))
	})
	for _, s := range all {
		if last := len(apart) - 1; last >= 0 && s.Start <= apart[last].End {
			apart[last].End = max(apart[last].End, s.End)
			continue
		}
		apart = append(apart, s)
	}
	return apart
}

// Mask is the text with a marker in the place of each span.
func Mask(text string, found []Span) string {
	var out strings.Builder
	at := 0
	for _, s := range found {
		out.WriteString(text[at:s.Start])
		out.WriteString("[redacted: " + s.Rule + "]")
		at = s.End
	}
	out.WriteString(text[at:])
	return out.String()
}
