package toolserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
)

// maxComplaint is how much of what a server said is told, in bytes.
const maxComplaint = 500

// maxBegins is how many braces that begin no JSON a line may have before a message.
const maxBegins = 32

var versionField = []byte(`"jsonrpc"`)

// messagesIn are the messages on a line of a server's, each on a line: banners and lines of a log,
// which may be JSON, stand between them, and before one on its line.
func messagesIn(line []byte) (found []byte) {
	for begins := 0; begins < maxBegins; {
		at := bytes.IndexByte(line, '{')
		if at < 0 || !bytes.Contains(line, versionField) {
			break
		}
		line = line[at:]
		decoder := json.NewDecoder(bytes.NewReader(line))
		var message map[string]json.RawMessage
		if decoder.Decode(&message) != nil {
			line, begins = line[1:], begins+1
			continue
		}
		end := int(decoder.InputOffset())
		if string(message["jsonrpc"]) == `"2.0"` {
			found = append(append(found, withNumber(message, line[:end])...), '\n')
		}
		line = line[end:]
	}
	return found
}

// withNumber is an answer whose id came back as a text with the number again that was sent.
func withNumber(message map[string]json.RawMessage, text []byte) []byte {
	var id string
	if message["method"] == nil && json.Unmarshal(message["id"], &id) == nil {
		if _, err := strconv.ParseInt(id, 10, 64); err == nil {
			message["id"] = json.RawMessage(id)
			text, _ = json.Marshal(message) // it was JSON
		}
	}
	return bytes.ToValidUTF8(text, []byte("\ufffd"))
}

// readableLine is the end of a text on one line, without what does something to a terminal.
func readableLine(text []byte) string {
	clean := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(text[max(0, len(text)-4*maxComplaint):]), ""))
	clean = strings.Join(strings.Fields(clean), " ")
	return strings.ToValidUTF8(clean[max(0, len(clean)-maxComplaint):], "")
}
