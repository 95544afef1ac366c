package inference

import "testing"

// TestEndOf: the end of old messages is found where a template leaves the same few tokens out of a rendering with new ones, and nowhere else.
func TestEndOf(t *testing.T) {
	for name, c := range map[string]struct {
		old, whole []int32
		rest, end  int
		ok         bool
	}{
		"the same":                           {old: []int32{1, 2, 3}, whole: []int32{1, 2, 3, 9}, end: 3, ok: true},
		"a block before the last answer":     {old: []int32{1, 7, 8, 3}, whole: []int32{1, 3, 9}, end: 2, ok: true},
		"the same block in each answer":      {old: []int32{1, 7, 8, 2, 7, 8, 3, 7, 8, 4}, whole: []int32{1, 2, 3, 4, 9}, end: 4, ok: true},
		"two blocks":                         {old: []int32{1, 7, 8, 2, 7, 6, 3}, whole: []int32{1, 2, 3, 9}},
		"a block that is too long":           {old: []int32{1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 2}, whole: []int32{1, 2, 9}},
		"a block with nothing behind it":     {old: []int32{1, 7, 8}, whole: []int32{1, 9}},
		"another message":                    {old: []int32{1, 2, 3}, whole: []int32{1, 5, 3, 9}},
		"a block that only the new one has":  {old: []int32{1, 2, 3}, whole: []int32{1, 7, 8, 2, 3, 9}},
		"what opens an answer":               {old: []int32{1, 2, 5, 6}, whole: []int32{1, 2, 9}, rest: 2, end: 2, ok: true},
		"blocks, and what opens an answer":   {old: []int32{1, 7, 2, 7, 3, 5, 6}, whole: []int32{1, 2, 3, 9}, rest: 2, end: 3, ok: true},
		"more than what opens an answer":     {old: []int32{1, 2, 4, 5, 6}, whole: []int32{1, 2, 9}, rest: 2},
		"an old one that is longer than all": {old: []int32{1, 2, 3}, whole: []int32{1, 2}},
	} {
		if end, ok := endOf(c.old, c.whole, c.rest); end != c.end || ok != c.ok {
			t.Errorf("%s: %d, %t, want %d, %t", name, end, ok, c.end, c.ok)
		}
	}
}
