package agents

// triedDay is the day as of which the shipped profiles were tried.
const triedDay = "2026-11-28"

// Shipped are the profiles of known agents, by name. Their switches keep the agents from everything
// but the gateway: telemetry, updates, price lists.
func Shipped() map[string]Profile {
	all := map[string]Profile{}
	for _, p := range shipped {
		p.Install.Before, p.Seen = triedDay, []string{p.Install.Version}
		p.Command = append([]string{Folder + "/bin/" + p.Program}, p.Command...)
		if p.Help != nil {
			p.Help = append([]string{Folder + "/bin/" + p.Program}, p.Help...)
		}
		all[p.Name] = p
	}
	return all
}

// shipped has the facts. Commands and Help are without the program.
var shipped = []Profile{
	{
		Name: "claude-code", Program: "claude", Install: Install{NPM: "@anthropic-ai/claude-code", Version: "2.1.332"},
		// With a fixed session and user, a run that is repeated sends the same requests.
		Command: []string{"-p", Instruction, "--dangerously-skip-permissions", "--output-format", "json",
			"--session-id", Session},
		Help: []string{"--help"},
		Env: map[string]string{
			"ANTHROPIC_BASE_URL": BaseURL, "ANTHROPIC_API_KEY": Key, "ANTHROPIC_MODEL": Model,
			"IS_SANDBOX": "1", // or it refuses to work as root
			// It also takes a tool and 9 KB of prompt away.
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		},
		Files: map[string]string{".claude.json": `{"userID":"0000000000000000000000000000000000000000000000000000000000000000"}`},
	},
	{
		Name: "codex", Program: "codex", Install: Install{NPM: "@openai/codex", Version: "0.171.0"},
		Command: []string{
			"exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--json", "--disable",
			"plugins", "--disable", "apps",
			"-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false", "-c", `web_search="disabled"`,
			// The built-in provider asks for a WebSocket first, seven times.
			"-c", `model_provider="rondo"`, "-c", `model_providers.rondo.name="rondo"`, "-c",
			`model_providers.rondo.base_url="` + BaseURL + `/v1"`,
			"-c", `model_providers.rondo.env_key="OPENAI_API_KEY"`, "-c",
			`model_providers.rondo.wire_api="responses"`, "--model", Model, Instruction,
		},
		Help: []string{"exec", "--help"},
		Env:  map[string]string{"OPENAI_API_KEY": Key},
	},
	{
		Name: "opencode", Program: "opencode", Install: Install{NPM: "opencode-ai", Version: "1.18.33"},
		Command: []string{"run", "--auto", "--format", "json", Instruction},
		Help:    []string{"run", "--help"},
		Env:     map[string]string{"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
		Files: map[string]string{".config/opencode/opencode.json": `{"model":"rondo/` + Model +
			`","provider":{"rondo":{"npm":"@ai-sdk/openai-compatible",` +
			`"options":{"baseURL":"` + BaseURL + `/v1","apiKey":"` + Key + `"},"models":{"` + Model + `":{}}}}}`},
	},
	{
		Name: "qwen-code", Program: "qwen", Install: Install{NPM: "@qwen-code/qwen-code", Version: "0.24.4"},
		Command: []string{"--auth-type", "openai", "--yolo", "--output-format", "json", "--prompt", Instruction},
		Help:    []string{"--help"},
		Env: map[string]string{
			"OPENAI_BASE_URL": BaseURL + "/v1", "OPENAI_API_KEY": Key, "OPENAI_MODEL": Model,
			"QWEN_CODE_NO_RELAUNCH": "true", "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
		},
		Files: map[string]string{".qwen/settings.json": `{"privacy":{"usageStatisticsEnabled":false},"general":{"enableAutoUpdate":false}}`},
	},
	{
		Name: "aider", Program: "aider", Install: Install{PyPI: "aider-chat", Version: "0.86.2",
			Python: []string{"3.12", "3.11", "3.10"}},
		// Without --no-git it makes a repository of the workspace, and commits;
		// verifiers find .git changed.
		Command: []string{
			"--model", "openai/" + Model, "--yes-always", "--no-check-update", "--no-git",
			"--no-gitignore", "--no-show-model-warnings", "--no-show-release-notes",
			"--chat-history-file", "/tmp/aider.chat", "--input-history-file", "/tmp/aider.input", "--message",
			Instruction,
		},
		Help: []string{"--help"},
		Env: map[string]string{"OPENAI_API_BASE": BaseURL + "/v1", "OPENAI_API_KEY": Key,
			"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
	},
	{
		Name: "mini-swe-agent", Program: "mini", Install: Install{PyPI: "mini-swe-agent", Version: "2.4.6",
			Python: []string{"3.12", "3.13", "3.11", "3.10"}},
		Command: []string{"-m", "openai/" + Model, "-y", "--exit-immediately", "-o", "/tmp/mini.json", "-t",
			Instruction},
		Check: []string{Folder + "/bin/mini", "--help"}, // it has no --version
		Help:  []string{"--help"},
		Env: map[string]string{
			"OPENAI_API_BASE": BaseURL + "/v1", "OPENAI_API_KEY": Key, "MSWEA_CONFIGURED": "true",
			"MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
		},
	},
	{
		Name: "openhands", Program: "openhands", Install: Install{PyPI: "openhands", Version: "1.16.0",
			Python: []string{"3.12"}},
		Command: []string{"--headless", "--json", "--override-with-envs", "-t", Instruction},
		Help:    []string{"--help"},
		Env: map[string]string{
			"LLM_BASE_URL": BaseURL + "/v1", "LLM_API_KEY": Key, "LLM_MODEL": "openai/" + Model,
			"LITELLM_LOCAL_MODEL_COST_MAP": "True",
		},
	},
}
