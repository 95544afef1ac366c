package gateway

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// dialect is one of the protocols in which harnesses speak to models. All of them become chat completions.
type dialect interface {
	// read reads a request; its error says what is wrong with it.
	read(body []byte) (*ask, error)
	// fields are those of its requests.
	fields() fields.Dialect
	// whole is the answer as one JSON value.
	whole(a *ask, n *answer) any
	// pieces is the answer as a stream's events.
	pieces(a *ask, n *answer) iter.Seq[piece]
	// failure is an error, as a whole answer or as the last piece of a stream.
	failure(r *refusal) piece
}

func (chatDialect) fields() fields.Dialect      { return fields.Chat }
func (messagesDialect) fields() fields.Dialect  { return fields.Messages }
func (responsesDialect) fields() fields.Dialect { return fields.Responses }

// piece is one event of a stream; a name is not given in all dialects.
type piece struct {
	name string
	data any
}

// ask is what a client asks for.
type ask struct {
	// forward holds the fields of a chat completion that go to the inference server as they are.
	forward map[string]json.RawMessage
	// messages are those of forward, one for each of the conversation.
	messages []json.RawMessage
	// conversation is what its messages say.
	conversation []events.PromptMessage
	maxTokens    int // 0: as many as the run allows
	stream       bool
	usage        bool // at the end of the stream
	logprobs     bool
	tokenIDs     bool
	// body is the request as it came, and requested what it says about sampling.
	body      []byte
	requested map[string]any
	// sampling is how the call samples.
	sampling runfile.Sampling
}

// answer is a turn that is on the log.
type answer struct {
	id      string // of the turn: RUN.ROLLOUT-TURN
	model   string
	created time.Time
	turn    events.TurnSampled
	// reasoning is what the model thought before it answered, where the server tells that apart.
	reasoning string
	// texts are those of the sampled tokens; they are as many as the turn's log-probabilities, or none.
	texts []string
	// prompt is the whole prompt's tokens.
	prompt []int32
	// sampled is whose memory it is.
	sampled *fleet.Answer
}

// pieceSize is how long the parts of a text are in a stream, in bytes: clients read line by line, some into small buffers.
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
