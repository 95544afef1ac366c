// Package vocabulary reads the words of inference servers: why an answer ended, that a
// request is too long for a context, that a call was not read, and that an answer is an
// error. Each kind of server and each proxy has its own; what is in no table is a state of
// its own, never the model's end.
package vocabulary

import (
	"strings"
	"unicode"

	"github.com/rondo-rl/rondo/events"
)

// finishes are the words for why an answer ended, in lower case and without anything but letters
// and digits. Those in the first row of a state are of OpenAI's API, which vLLM, SGLang, llama.cpp,
// TensorRT-LLM, LMDeploy, Ollama and most others speak.
var finishes = map[string][]string{
	events.FinishStop: {
		"stop",
		// TGI, Anthropic, Together, watsonx
		"eos", "eostoken", "endoftext", "endturn", "endofturn", "stopsequence", "stopstring",
		"stopword", "stoptoken", "stopstr",
		"word",                                                       // llama.cpp's /completion
		"complete", "completed", "done", "finish", "finished", "end", // Cohere, gateways
		"endid", "kendid", "stopwords", "kstopwords", "eostokenid", "endofsequence", // TensorRT-LLM's executor
	},
	events.FinishToolCalls: {
		"toolcalls", "functioncall",
		"tooluse", "toolcall", "functioncalls", // Anthropic, Cohere
		// The server says that it did not read a call that the model wrote: Gemini, Bedrock.
		"malformedfunctioncall", "malformedtooluse", "malformedtoolcall", "unexpectedtoolcall", "toomanytoolcalls",
	},
	events.FinishLength: {
		"length",
		// Gemini, Anthropic, watsonx, Cohere
		"maxtokens", "maxlength", "maxoutputtokens", "maxnewtokens", "maxcompletiontokens", "tokenlimit", "limit",
		"lengthlimit", "errorlimit",
		// TensorRT-LLM's executor, gateways
		"klength", "maxtokensreached", "tokenlimitreached", "maxseqlen", "maxmodellen", "maxtotaltokens",
		"outputlimit", "truncated",
		"contextlimit", "contextfull", "contextoverflow", "contextwindowfull", "modellength", "contextlength",
		"contextlengthexceeded", "modelcontextwindowexceeded", "contextwindowexceeded",
		"maxcontextlength", // Mistral, Anthropic
	},
	// vLLM
	events.FinishRepetition: {"repetition", "repetitiondetected", "repetitiondetection", "repetitive",
		"loop", "loopdetected"},
	events.FinishFiltered: {
		"contentfilter",
		// Bedrock, Anthropic, Gemini
		"contentfiltered", "guardrailintervened", "guardrail", "refusal", "safety", "recitation", "blocklist",
		"prohibitedcontent", "spii", "imagesafety", "language",
		// Zhipu, Cohere
		"modelarmor", "sensitive", "errortoxic", "blocked", "moderation", "flagged", "contentpolicyviolation",
		// Gemini, gateways
		"imagerecitation", "imageprohibitedcontent", "contentblocked", "policyviolation",
		"safetyfilter", "toxicity", "unsafe",
	},
	// vLLM and SGLang end turns with this word when they load new weights. Other servers
	// have no word for that alone.
	events.FinishAborted: {"abort"},
	events.FinishFailed: {
		"error",
		"aborted", "cancelled", "canceled", "cancel", "usercancel", "usercancelled", "preempted",
		"preempt", "preemption",
		"interrupted", "shutdown", "disconnect", "disconnected", "evicted", // TensorRT-LLM, Cohere
		"failed", "failure", "internalerror", "servererror", "exception",
		// DeepSeek, Zhipu, watsonx
		"timeout", "timedout", "timelimit", "maxtime", "networkerror", "insufficientsystemresource",
		"overloaded", "outofmemory", "oom",
		"ktimedout", "kcancelled", "requestcancelled", "expired", "deadlineexceeded", "killed", "clientdisconnect",
		"enginedead", "streamerror", "unavailable",
	},
}

var finishOf = func() map[string]string {
	of := map[string]string{}
	for state, words := range finishes {
		for _, word := range words {
			of[word] = state
		}
	}
	return of
}()

// Finish is why an answer ended, one of events.Finish, by a server's word for it: upper
// or lower case, with any signs between its parts. No word, and one that is in no table,
// is events.FinishUnknown.
func Finish(word string) string {
	letters := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, word)
	for _, prefix := range []string{"finishreason", "stopreason"} { // names of enumerations
		letters = strings.TrimPrefix(letters, prefix)
	}
	if state, known := finishOf[letters]; known {
		return state
	}
	return events.FinishUnknown
}
