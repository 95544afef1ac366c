// Package dialects reads the requests of harnesses and writes the answers that they know: OpenAI's
// chat completions and responses, Anthropic's messages, and Gemini's contents. Each request
// becomes one of chat completions, since that is what inference servers take. What a chat cannot
// carry is refused by name.
package dialects

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// Dialect is one of the protocols in which harnesses speak to models.
type Dialect interface {
	// Read reads a request; its error says what is wrong with it.
	Read(body []byte) (*Request, error)
	// Whole is the answer as one JSON value.
	Whole(a *Request, n *Answer) any
	// Stream begins the answer as a stream, whose events it gives to send. Of head it has the id,
	// the model, the time, and the tokens of the prompt as far as they are known.
	Stream(a *Request, head *Answer, send func(Piece)) Stream
	// Failure is an error, as a whole answer or as the last piece of a stream.
	Failure(f Failure) Piece
}

// Stream is an answer in pieces. Words may be told before the turn is on the log: nobody acts on
// them. Calls, and that the answer is complete, are told at the end alone.
type Stream interface {
	// Reason and Say tell what there is more of the thoughts, and of the text.
	Reason(text string)
	Say(text string)
	// End tells what of a turn was not told yet, and ends the stream. Of a turn that says otherwise
	// than the stream has, its error is ErrOtherwise: nothing more is told.
	End(n *Answer) error
}

// ErrOtherwise says that the turn on the log is not what was told of it.
var ErrOtherwise = errors.New("the stream said otherwise than the recorded turn does: read the turn, or ask again")

// told is what of an answer has left; head is what the stream began with.
type told struct {
	head               *Answer
	reasoning, content strings.Builder
}

// rest tells what of an answer was not told yet, and gives the answer as the stream names it.
func (t *told) rest(s Stream, n *Answer) (*Answer, error) {
	thoughts, same := strings.CutPrefix(n.Reasoning, t.reasoning.String())
	words, alike := strings.CutPrefix(n.Turn.Content, t.content.String())
	if !same || !alike {
		return nil, ErrOtherwise
	}
	named := *n
	named.ID, named.Created = t.head.ID, t.head.Created
	if thoughts != "" {
		s.Reason(thoughts)
	}
	if words != "" {
		s.Say(words)
	}
	return &named, nil
}

// Piece is one event of a stream; a name is not given in all dialects.
type Piece struct {
	Name string
	Data any
}

// Failure is what went wrong, by the status of HTTP and a code.
type Failure struct {
	Status        int
	Code, Message string
}

// Request is what a client asks for.
type Request struct {
	// Forward holds the fields of a chat completion that go to the inference server as they are.
	Forward map[string]json.RawMessage
	// Messages are those of Forward, one for each of the conversation.
	Messages []json.RawMessage
	// Conversation is what its messages say.
	Conversation []events.PromptMessage
	// Images are the bytes of the conversation's images, by their digests.
	Images    map[string][]byte
	MaxTokens int // 0: as many as the run allows
	Stream    bool
	// Withheld are the types of the tools that the model is not offered, since
	// nobody here could run them.
	Withheld []string
	// Said are the fields of a chat completion; nil: it is another dialect's.
	Said map[string]json.RawMessage
	// Spelled is what the request says of sampling, as chat completions
	// spell it; nil: its body does.
	Spelled []byte

	thoughts bool // Gemini's: the client wants them
	usage    bool // at the end of the stream
	logprobs bool
	tokenIDs bool
	tools    toolbox
}

// Join puts the messages into the fields that go to the server.
func (a *Request) Join() { a.Forward["messages"] = array(a.Messages) }

// Answer is a turn that is on the log.
type Answer struct {
	// of the turn: RUN.ROLLOUT-TURN; a stream that began before the turn had its
	// number is named otherwise
	ID      string
	Model   string
	Created time.Time
	Turn    events.TurnSampled
	// Reasoning is what the model thought before it answered, where the server tells that apart.
	Reasoning string
	// Texts are those of the sampled tokens; they are as many as the turn's
	// log-probabilities, or none.
	Texts []string
	// Prompt is the whole prompt's tokens.
	Prompt []int32
}

// pieceSize is how long the parts of a text are in a stream, in bytes: clients read line by line,
// some into small buffers.
const pieceSize = 4096

// parts cuts a text between its characters.
func parts(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(text) > pieceSize {
			cut := pieceSize
			for cut > pieceSize-4 && text[cut]&0xC0 == 0x80 { // within a character
				cut--
			}
			if !yield(text[:cut]) {
				return
			}
			text = text[cut:]
		}
		if text != "" {
			yield(text)
		}
	}
}
