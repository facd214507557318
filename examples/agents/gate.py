"""A hook for a coding agent: ask the user about shell commands that would remove files.

It reads Claude Code's `PreToolUse` event and answers it. Other agents have similar hooks.
"""

import json
import subprocess
import sys

event = json.load(sys.stdin)
words = ["shioenv", "preview", "--json", "--timeout", "30", "--", "bash", "-c"]
done = subprocess.run(
    [*words, event["tool_input"]["command"]], cwd=event["cwd"], capture_output=True
)
patch = json.loads(done.stdout)["context_patch"] if done.stdout else None
removed = [each[1] for each in patch or [] if each[0] == "r" and each[1].startswith("/fs/")]
reason = "no preview" if patch is None else f"removes {len(removed)} files: {removed[:5]}"
answer = {"permissionDecision": "ask", "permissionDecisionReason": reason}
if removed or patch is None:
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **answer}}))
