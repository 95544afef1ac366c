package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The vocabulary: 0…255 are bytes, then the marks of the chat template, then
// one token for every action.
//
// A chat is rendered as
//
//	[tools] name \n name … [end]                            (when the request offers tools)
//	[system] text [end]   [user] text [end]
//	[assistant] ACTION line \n ACTION line … [call] id [field] name [field] arguments … [end]
//	[tool] id [field] text [end]
//
// Every line of an assistant's text stands for one decision and is preceded by the action token of
// that line, a hash of the line itself. So a message that comes back as plain text renders to the
// very tokens that were sampled.
const (
	tokenSystem = 256 + iota
	tokenUser
	tokenAssistant
	tokenTool
	tokenTools
	tokenCall
	tokenField
	tokenEnd

	// ActionBase is the first action token, ActionCount their number.
	ActionBase  = 1 << 12
	ActionCount = 1 << 20
)

// VocabularySize is one more than the largest token id.
const VocabularySize = ActionBase + ActionCount

// actionToken is the token of the decision that a line of assistant text states.
func actionToken(line string) int32 {
	h := hashString(hashSeed, line)
	return ActionBase + int32((h^h>>32)%ActionCount)
}

// Render gives the tokens of a chat. With generate set the opening mark of the answer follows,
// which makes it a prompt.
func Render(tools []string, messages []Message, generate bool) []int32 {
	size := 64
	for i := range messages {
		size += len(messages[i].Content) + 128*(1+len(messages[i].ToolCalls))
		for _, call := range messages[i].ToolCalls {
			size += len(call.Function.Arguments)
		}
	}
	tokens := make([]int32, 0, size)
	if len(tools) > 0 {
		tokens = append(tokens, tokenTools)
		tokens = appendText(tokens, strings.Join(tools, "\n"))
		tokens = append(tokens, tokenEnd)
	}
	for i := range messages {
		tokens = appendMessage(tokens, &messages[i])
	}
	if generate {
		tokens = append(tokens, tokenAssistant)
	}
	return tokens
}

func appendMessage(tokens []int32, m *Message) []int32 {
	switch m.Role {
	case "assistant":
		tokens = append(tokens, tokenAssistant)
		return append(appendAnswer(tokens, m.Content, m.ToolCalls), tokenEnd)
	case "tool":
		tokens = append(tokens, tokenTool)
		tokens = appendText(tokens, m.ToolCallID)
		tokens = append(tokens, tokenField)
	case "user":
		tokens = append(tokens, tokenUser)
	default:
		tokens = append(tokens, tokenSystem)
	}
	tokens = appendText(tokens, m.Content)
	return append(tokens, tokenEnd)
}

// appendAnswer renders what an assistant says, without the marks around it.
func appendAnswer(tokens []int32, content string, calls []ToolCall) []int32 {
	tokens = appendLines(tokens, content)
	for i := range calls {
		tokens = append(tokens, tokenCall)
		tokens = appendText(tokens, calls[i].ID)
		tokens = append(tokens, tokenField)
		tokens = appendText(tokens, calls[i].Function.Name)
		tokens = append(tokens, tokenField)
		tokens = appendText(tokens, calls[i].Function.Arguments)
	}
	return tokens
}

func appendLines(tokens []int32, content string) []int32 {
	for content != "" {
		line, rest, more := strings.Cut(content, "\n")
		tokens = append(tokens, actionToken(line))
		tokens = appendText(tokens, line)
		if more {
			tokens = append(tokens, '\n')
			if rest == "" { // a text that ends in a newline has an empty last line
				tokens = append(tokens, actionToken(""))
			}
		}
		content = rest
	}
	return tokens
}

func appendText(tokens []int32, text string) []int32 {
	for i := range len(text) {
		tokens = append(tokens, int32(text[i]))
	}
	return tokens
}

// parsedMessage is a message together with the places of its action tokens.
type parsedMessage struct {
	Message
	actions []int // indices into the token sequence, one a line of Content
}

// parse is the inverse of Render. The last message may be cut off at any point; anything else
// out of place is an error.
func parse(tokens []int32) (tools []string, messages []parsedMessage, err error) {
	p := tokenReader{tokens: tokens}
	for p.next < len(tokens) {
		start := p.next
		mark := tokens[p.next]
		p.next++
		switch mark {
		case tokenTools:
			tools = strings.Split(p.text(), "\n")
		case tokenSystem:
			messages = append(messages, parsedMessage{Message: Message{Role: "system", Content: p.text()}})
		case tokenUser:
			messages = append(messages, parsedMessage{Message: Message{Role: "user", Content: p.text()}})
		case tokenTool:
			m := parsedMessage{Message: Message{Role: "tool", ToolCallID: p.text()}}
			p.skip(tokenField)
			m.Content = p.text()
			messages = append(messages, m)
		case tokenAssistant:
			messages = append(messages, p.answer())
		default:
			return nil, nil, fmt.Errorf("token %d is %d: want the beginning of a message", start, mark)
		}
		if p.next < len(tokens) && tokens[p.next] != tokenEnd {
			return nil, nil, fmt.Errorf("token %d is %d: want the end of the message that begins at token %d", p.next,
				tokens[p.next], start)
		}
		p.next++
	}
	if len(messages) == 0 {
		return nil, nil, errors.New("no message in the tokens")
	}
	return tools, messages, nil
}

type tokenReader struct {
	tokens []int32
	next   int
	buffer []byte
}

// text reads bytes up to the next token that is none.
func (p *tokenReader) text() string {
	p.buffer = p.buffer[:0]
	for ; p.next < len(p.tokens); p.next++ {
		token := p.tokens[p.next]
		if token < 0 || token > 255 {
			break
		}
		p.buffer = append(p.buffer, byte(token))
	}
	return string(p.buffer)
}

func (p *tokenReader) skip(mark int32) {
	if p.next < len(p.tokens) && p.tokens[p.next] == mark {
		p.next++
	}
}

func (p *tokenReader) answer() parsedMessage {
	m := parsedMessage{Message: Message{Role: "assistant"}}
	var content strings.Builder
	for p.next < len(p.tokens) && p.tokens[p.next] >= ActionBase && p.tokens[p.next] < VocabularySize {
		m.actions = append(m.actions, p.next)
		p.next++
		content.WriteString(p.text())
	}
	m.Content = content.String()
	for p.next < len(p.tokens) && p.tokens[p.next] == tokenCall {
		p.next++
		call := ToolCall{ID: p.text(), Type: "function"}
		p.skip(tokenField)
		call.Function.Name = p.text()
		p.skip(tokenField)
		call.Function.Arguments = p.text()
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return m
}

// TokenText is the text of one token as the logprobs list of an answer shows it: bytes that are no
// complete character are written as \xNN, marks and actions in angle brackets.
func TokenText(token int32) string {
	marks := [...]string{"<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|tools|>",
		"<|call|>", "<|field|>", "<|end|>"}
	switch {
	case token >= 0 && token < utf8.RuneSelf:
		return asciiText[token : token+1]
	case token >= 0 && token <= 255:
		return fmt.Sprintf("\\x%02x", token)
	case token >= tokenSystem && token <= tokenEnd:
		return marks[token-tokenSystem]
	case token >= ActionBase && token < VocabularySize:
		return fmt.Sprintf("<|action:%05x|>", token-ActionBase)
	}
	return fmt.Sprintf("<|%d|>", token)
}

var asciiText = func() string {
	var b strings.Builder
	for c := range utf8.RuneSelf {
		b.WriteByte(byte(c))
	}
	return b.String()
}()
