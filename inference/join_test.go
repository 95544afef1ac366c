package inference

import (
	"strings"
	"testing"
)

// TestEndOf: the end of old messages is found where a template leaves the same few tokens out of a
// rendering with new ones, and nowhere else.
func TestEndOf(t *testing.T) {
	for name, c := range map[string]struct {
		old, whole []int32
		rest, end  int
		ok         bool
	}{
		"the same":                       {old: []int32{1, 2, 3}, whole: []int32{1, 2, 3, 9}, end: 3, ok: true},
		"a block before the last answer": {old: []int32{1, 7, 8, 3}, whole: []int32{1, 3, 9}, end: 2, ok: true},
		"the same block in each answer": {old: []int32{1, 7, 8, 2, 7, 8, 3, 7, 8, 4},
			whole: []int32{1, 2, 3, 4, 9}, end: 4, ok: true},
		"two blocks": {old: []int32{1, 7, 8, 2, 7, 6, 3}, whole: []int32{1, 2, 3, 9}},
		"a block that is too long": {old: []int32{1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 2},
			whole: []int32{1, 2, 9}},
		"a block with nothing behind it":    {old: []int32{1, 7, 8}, whole: []int32{1, 9}},
		"another message":                   {old: []int32{1, 2, 3}, whole: []int32{1, 5, 3, 9}},
		"a block that only the new one has": {old: []int32{1, 2, 3}, whole: []int32{1, 7, 8, 2, 3, 9}},
		"what opens an answer": {old: []int32{1, 2, 5, 6}, whole: []int32{1, 2, 9},
			rest: 2, end: 2, ok: true},
		"blocks, and what opens an answer": {old: []int32{1, 7, 2, 7, 3, 5, 6}, whole: []int32{1, 2, 3, 9},
			rest: 2, end: 3, ok: true},
		"more than what opens an answer":     {old: []int32{1, 2, 4, 5, 6}, whole: []int32{1, 2, 9}, rest: 2},
		"an old one that is longer than all": {old: []int32{1, 2, 3}, whole: []int32{1, 2}},
	} {
		if end, ok := endOf(c.old, c.whole, c.rest); end != c.end || ok != c.ok {
			t.Errorf("%s: %d, %t, want %d, %t", name, end, ok, c.end, c.ok)
		}
	}
}

// TestBehind: what a rendering with stand-ins has behind the last one is found where an earlier one
// has proven that its end is the first stop token, and nowhere else. A letter is a token, | the
// stop token, and M a stand-in.
func TestBehind(t *testing.T) {
	tokens := func(text string) (ids []int32) {
		for _, r := range text {
			ids = append(ids, r)
		}
		return ids
	}
	asked := []string{"s:sys|u:hi|a:", "t:one|a:"} // and what was sampled behind each
	for name, c := range map[string]struct {
		asked  []string
		whole  string
		unsure int // the sample that is, from 1 on
		want   string
	}{
		"as before":                     {asked, "s:sys|u:hi|a:M|t:one|a:M|t:two|a:", 0, "t:two|a:"},
		"a longer beginning of answers": {asked, "s:sys|u:hi|a:<>M|t:one|a:<>M|t:two|a:<", 0, "t:two|a:<"},
		"what opens an answer": {[]string{"s:sys|u:hi|a:<", "t:one|a:<"},
			"s:sys|u:hi|a:M|t:one|a:M|t:two|a:<", 0, "t:two|a:<"},
		"more than what opens an answer": {[]string{"s:sys|u:hi|a:<<<<<<<<<", "t:one|a:"},
			"s:sys|u:hi|a:M|t:one|a:M|t:two|a:", 0, ""},
		"another beginning":               {asked, "s:new|u:hi|a:M|t:one|a:M|t:two|a:", 0, ""},
		"another result":                  {asked, "s:sys|u:hi|a:M|t:uno|a:M|t:two|a:", 0, ""},
		"a short prompt, and another one": {[]string{"s:sys|u:hi|a:", "tx"}, "s:sys|u:hi|a:M|tyM|t:two|a:", 0, ""},
		"a note in the last result": {[]string{"s:sys|u:hi|a:", "t:one!M|a:"},
			"s:sys|u:hi|a:M|t:oneM|a:M|t:two!M|a:", 0, ""},
		"stand-ins of two messages":   {asked, "s:sys|u:hi|a:M|M|t:one|a:M|M|t:two|a:", 0, ""},
		"an end that no stand-in had": {asked, "s:sys|u:hi|a:M|t:one|a:Mx|t:two|a:", 0, ""},
		"nothing before the end":      {asked, "s:sys|u:hi|a:M|t:one|a:|t:two|a:", 0, ""},
		"no end": {asked, "s:sys|u:hi|a:M|t:one|a:M;t:" + strings.Repeat("x", 64) + "M|a:",
			0, ""},
		"an earlier end out of reach": {asked, "s:sys|u:hi|a:M;" + strings.Repeat("x", 64) +
			"M|t:one|a:M|t:two|a:", 0, ""},
		"an earlier answer that was cut":     {asked, "s:sys|u:hi|a:M|t:one|a:M|t:two|a:", 1, ""},
		"the last answer was cut":            {asked, "s:sys|u:hi|a:M|t:one|a:M|t:two|a:", 2, ""},
		"fewer stand-ins than there must be": {asked, "s:sys|u:hi|a:M|t:one|a:", 0, ""},
	} {
		conv := Conversation{Request: Request{Messages: []Message{{Role: "user"}}}}
		for i, prompt := range c.asked {
			begin := len(conv.Known) + len(tokens(prompt))
			conv.Known = append(append(conv.Known, tokens(prompt)...), tokens("abc|")...)
			conv.Samples = append(conv.Samples, Sampled{begin, len(conv.Known),
				len(conv.Request.Messages), i == c.unsure-1})
			conv.Request.Messages = append(conv.Request.Messages, Message{Role: roleAssistant}, Message{Role: "tool"})
		}
		var added []int32
		_, ok := conv.standIns()
		if ok = ok && conv.hasLike(); ok {
			added, ok = conv.addedTokens(tokens(c.whole))
		}
		if string(added) != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, string(added), ok, c.want)
		}
	}
}
