package wire

import (
	"fmt"
	"strings"
)

// MaxCall bounds a call's command line and environment together, in bytes: more
// than Linux gives a program.
const MaxCall = 4 << 20

// Call is a command that a program of one sandbox runs in another. Ahead of it come three pipes:
// its standard input, output and error.
type Call struct {
	Dir        string // its working folder, absolute
	Argv, Env  []string
	WallMillis int64 // 0: as long as the caller waits
}

// CallSizes is the header of a call's frame. The body holds the texts, each with a zero byte behind
// it, as their bytes need not be UTF-8.
type CallSizes struct {
	Argv, Env  int
	WallMillis int64
}

// CallEnd is how a call's command ended. Nothing that the command started runs any more.
type CallEnd struct {
	ExitCode int
	Message  string `json:",omitempty"` // for the caller's standard error
}

// Encode gives a call's header and body.
func (c Call) Encode() (CallSizes, []byte, error) {
	var body []byte
	for _, text := range append(append([]string{c.Dir}, c.Argv...), c.Env...) {
		if strings.ContainsRune(text, 0) {
			return CallSizes{}, nil, fmt.Errorf("%w: a zero byte in the command", ErrInvalid)
		}
		body = append(append(body, text...), 0)
	}
	if len(body) > MaxCall {
		return CallSizes{}, nil, fmt.Errorf("%w: command line and environment have %d bytes (limit %d)", ErrTooLarge,
			len(body), MaxCall)
	}
	return CallSizes{len(c.Argv), len(c.Env), c.WallMillis}, body, nil
}

// Decode is the call of a header and a body.
func (s CallSizes) Decode(body []byte) (Call, error) {
	texts := strings.Split(string(body), "\x00")
	texts = texts[:len(texts)-1] // behind the last zero byte there is nothing
	if s.Argv < 1 || s.Env < 0 || s.Argv > len(texts) || s.Env > len(texts) ||
		1+s.Argv+s.Env != len(texts) || texts[1] == "" {
		return Call{}, fmt.Errorf("%w: %d texts are not a folder, %d words and %d variables", ErrProtocol,
			len(texts), s.Argv, s.Env)
	}
	return Call{texts[0], texts[1 : 1+s.Argv], texts[1+s.Argv:], s.WallMillis}, nil
}
