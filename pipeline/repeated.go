package pipeline

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Changed is a part of a recorded effect that came out differently when it was run again.
type Changed struct {
	Rollout string `json:"rollout"`
	// Turn and Call, and the Tool that it names, say which result of a turn it is. What a verifier
	// says belongs to no turn, and a workspace to no call.
	Turn     *int   `json:"turn,omitempty"`
	Call     string `json:"call,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Field    string `json:"field"`
	Recorded string `json:"recorded"` // both shortened around the first place at which they differ
	Again    string `json:"again"`
}

// NewChanged names a field and its two values.
func NewChanged(field string, recorded, again any) Changed {
	a, b := shortened(fmt.Sprint(recorded), fmt.Sprint(again))
	return Changed{Field: field, Recorded: a, Again: b}
}

// shownBefore and shownAfter bound what is shown of a value before and after the
// first difference, in bytes.
const (
	shownBefore = 40
	shownAfter  = 160
)

// shortened cuts two texts to what is around the first difference.
func shortened(a, b string) (string, string) {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	from := 0
	if same > shownBefore+len("…") {
		from = same - shownBefore
	}
	return window(a, from), window(b, from)
}

// window is a text from one byte on, as whole characters.
func window(s string, from int) string {
	begin, end := "", ""
	if from > 0 {
		for from < len(s) && !utf8.RuneStart(s[from]) {
			from++
		}
		begin, s = "…", s[from:]
	}
	if most := shownBefore + shownAfter; len(s) > most {
		end, s = "…", s[:most]
	}
	return begin + strings.ToValidUTF8(s, "") + end
}
