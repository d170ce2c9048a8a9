package endtoend_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// refused returns the answer if it is a success, which means that the attacker reached something.
func refused(status int, body string) string {
	if status >= 200 && status < 300 && status != http.StatusNoContent {
		return fmt.Sprintf("%d %.200s", status, body)
	}
	return ""
}

// asVictim makes the call in the victim's account with the token of the hostile one, and in the hostile account
// with the ids of the victim.
func asVictim(name, method, path, body string) attackKind {
	return attackKind{name, func(a *arena, i int) string {
		fill := strings.NewReplacer("STAGE", "held", "TASK", a.heldTask, "KEY", a.heldKey, "DELEGATE", a.delegate)
		account := []string{preyAccount, hostile}[i%2]
		p := strings.NewReplacer("ACCOUNT", account).Replace(fill.Replace(path))
		return refused(a.do(hostile, method, p, strings.ReplaceAll(fill.Replace(body), "ACCOUNT", account)))
	}}
}

// accountAttacks use the valid token of another account.
func accountAttacks() []attackKind {
	register := `{"delegateName":"spy","tags":["spy"],"supportedTaskTypes":["CI_DOCKER_EXECUTE_TASK"]}`
	kinds := []attackKind{
		asVictim("read a stage", "GET", "/api/stages/STAGE?accountId=ACCOUNT", ""),
		asVictim("abort a stage", "POST", "/api/stages/STAGE/abort?accountId=ACCOUNT", ""),
		asVictim("read a task", "GET", "/api/tasks/TASK?accountId=ACCOUNT", ""),
		asVictim("abort a task", "POST", "/api/tasks/TASK/abort?accountId=ACCOUNT", ""),
		asVictim("drain a delegate", "POST", "/api/delegates/DELEGATE/drain?accountId=ACCOUNT", ""),
		asVictim("poll as a delegate, v1", "GET", "/api/agent/delegates/DELEGATE/task-events?accountId=ACCOUNT", ""),
		asVictim("poll as a delegate, v2", "GET", "/api/executions/DELEGATE/runner-events?accountId=ACCOUNT", ""),
		asVictim("acquire a task, v1", "PUT", "/api/agent/v2/delegates/DELEGATE/tasks/TASK/acquire?accountId=ACCOUNT&delegateInstanceId=DELEGATE", ""),
		asVictim("acquire a task, v2", "GET", "/api/executions/TASK/request?delegateId=DELEGATE&accountId=ACCOUNT", ""),
		asVictim("read a log", "GET", "/blob?accountID=ACCOUNT&key=KEY", ""),
		asVictim("upload a log", "POST", "/blob/link/upload?accountID=victim&key=KEY", ""),
	}
	onlyVictim := func(name, method, path, body string) attackKind {
		k := asVictim(name, method, path, body)
		return attackKind{name, func(a *arena, _ int) string { return k.try(a, 0) }}
	}
	kinds = append(kinds,
		onlyVictim("follow a log", "GET", "/stream?accountID=ACCOUNT&key=KEY", ""),
		onlyVictim("list stages", "GET", "/api/stages?accountId=ACCOUNT", ""),
		onlyVictim("list delegates", "GET", "/api/delegates?accountId=ACCOUNT", ""),
		onlyVictim("register a delegate", "POST", "/api/agent/delegates/register?accountId=ACCOUNT", register),
		onlyVictim("follow events", "GET", "/api/events?accountId=ACCOUNT", ""),
		onlyVictim("pause the account", "POST", "/api/pause?accountId=ACCOUNT", ""),
		onlyVictim("set a limit", "PUT", "/api/limits?accountId=ACCOUNT", `{"max":1}`),
		onlyVictim("put a schedule", "PUT", "/api/schedules/x?accountId=ACCOUNT", `{"cron":"@every 1s","stage":{"steps":[{}]}}`),
		onlyVictim("submit a stage", "POST", "/api/stages?accountId=ACCOUNT", `{"steps":[{}]}`),
	)
	// These answer 204 where they succeed.
	for name, call := range map[string][3]string{
		"answer a task":       {"POST", "/api/agent/v2/tasks/TASK/delegates/DELEGATE?accountId=ACCOUNT", `{"code":"FAILED"}`},
		"write a log":         {"PUT", "/stream?accountID=victim&key=KEY", `[{"out":"forged\n"}]`},
		"delete a log":        {"DELETE", "/stream?accountID=victim&key=KEY", ""},
		"replace a log":       {"POST", "/blob?accountID=victim&key=KEY", `{"out":"forged\n"}`},
		"unregister":          {"POST", "/api/agent/delegates/unregister?accountId=ACCOUNT", `{"delegateId":"DELEGATE"}`},
		"beat for a delegate": {"POST", "/api/agent/delegates/heartbeat-with-polling?accountId=ACCOUNT", `{"delegateId":"DELEGATE","draining":true}`},
	} {
		kinds = append(kinds, attackKind{name, func(a *arena, i int) string {
			fill := strings.NewReplacer("TASK", a.heldTask, "KEY", a.heldKey, "DELEGATE", a.delegate, "ACCOUNT", preyAccount)
			status, body := a.do(hostile, call[0], fill.Replace(call[1]), fill.Replace(call[2]))
			if status/100 == 2 {
				return fmt.Sprint(status, " ", body)
			}
			return ""
		}})
	}
	return append(kinds, attackKind{"forge a token", func(a *arena, i int) string {
		good := a.tokens[preyAccount]
		parts := strings.Split(good, ".")
		forged := []string{
			"", "Bearer", strings.Repeat("a", 100_000), good[:len(good)-4], strings.Join(parts[:4], "."), parts[0] + "...." + parts[4],
			"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ2aWN0aW0ifQ.", strings.Replace(good, parts[0], "eyJhbGciOiJub25lIn0", 1), // headers of tokens without a signature
			parts[0] + "." + strings.Join(strings.Split(a.tokens[hostile], ".")[1:], "."), strings.ToUpper(good),
		}[i%10]
		return refused(a.call(forged, "GET", "/api/stages?accountId=victim", nil, nil))
	}})
}

// submit submits a stage of the hostile account.
func (a *arena) submit(stage string) (int, string) {
	return a.do(hostile, "POST", "/api/stages?accountId=hostile", stage)
}

// many returns a list of n values in JSON.
func many(n int, value string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
}

// boundAttacks are requests of the hostile account that would cost others.
func boundAttacks() []attackKind {
	with := func(name string, stage func(i int) string) attackKind {
		return attackKind{name, func(a *arena, i int) string { return refused(a.submit(stage(i))) }}
	}
	const steps = `"steps":[{"id":"a","data":{}}]`
	return []attackKind{
		with("submit 100,000 selectors", func(i int) string {
			return `{"selectors":` + many(100_000+i, `"x"`) + `,` + steps + `}`
		}),
		with("submit 100,000 steps", func(i int) string { return `{"steps":` + many(100_000+i, `{}`) + `}` }),
		with("submit a string of 20 MB", func(i int) string {
			return `{"steps":[{"data":{"name":"` + strings.Repeat("n", 20_000_000+i) + `"}}]}`
		}),
		with("submit a body of 40 MB", func(i int) string {
			return `{"steps":[{"data":{"files":` + many(40, `{"path":"x","data":"`+strings.Repeat("n", 1_000_000)+`"}`) + `}}]}`
		}),
		with("submit deep JSON", func(i int) string {
			return `{"steps":[{"data":{"labels":` + strings.Repeat("[", 5_000+i) + strings.Repeat("]", 5_000+i) + `}}]}`
		}),
		with("submit numbers out of range", func(i int) string {
			return `{"timeout_ms":` + []string{"-1", "1e300", "9223372036854775807", strings.Repeat("9", 1000), "1.5"}[i%5] + `,` + steps + `}`
		}),
		with("submit ids that are paths", func(i int) string {
			return `{"id":` + []string{`".."`, `"."`, `"a\u0000b"`, `"` + strings.Repeat("i", 10_000) + `"`, `"a\nb"`}[i%5] + `,` + steps + `}`
		}),
		with("submit another's log service", func(i int) string {
			return `{"init":{"log_config":{"url":"` + []string{"http://127.0.0.1:1", "http://169.254.169.254/latest", "file:///etc/passwd", "http://[::1]:80", "gopher://x"}[i%5] + `"},"log_key":"k"},` + steps + `}`
		}),
		with("submit another's log key", func(i int) string {
			return `{"steps":[{"data":{"log_key":"` + []string{"held/wait", "../held/wait", "x/../../held/wait", strings.Repeat("k", 5000), "held%2Fwait"}[i%5] + `"}}]}`
		}),
		with("submit unknown members", func(i int) string { return `{"stepps":[{}],"admin":true}` }),
		{"put schedules that fire too often", func(a *arena, i int) string {
			cron := []string{"@every -5s", "@every 1ns", "@every 0s", strings.Repeat("*", 10_000), "not a cron"}[i%5]
			return refused(a.do(hostile, "PUT", "/api/schedules/s?accountId=hostile", `{"cron":"`+cron+`","stage":{`+steps+`}}`))
		}},
		{"ask with unknown parameters", func(a *arena, i int) string {
			return refused(a.do(hostile, "GET", fmt.Sprintf("/api/stages?accountId=hostile&acount=%d", i), ""))
		}},
		{"register with 100,000 tags", func(a *arena, i int) string {
			return refused(a.do(hostile, "POST", "/api/agent/delegates/register?accountId=hostile", `{"delegateName":"x","tags":`+many(100_000+i, `"t"`)+`}`))
		}},
		{"set 2,000 limits", func(a *arena, i int) string {
			reached := ""
			for n := range 200 {
				if i == 9 {
					reached = refused(a.do(hostile, "PUT", "/api/limits?accountId=hostile", fmt.Sprintf(`{"pipeline":"p%d-%d","max":1}`, i, n)))
				} else {
					_, _ = a.do(hostile, "PUT", "/api/limits?accountId=hostile", fmt.Sprintf(`{"pipeline":"p%d-%d","max":1}`, i, n))
				}
			}
			return reached
		}},
		{"queue more than the budget", func(a *arena, i int) string {
			for n := range 60 {
				status, _ := a.submit(fmt.Sprintf(`{"id":"flood-%d-%d","selectors":["nowhere"],%s}`, i, n, steps))
				if i == 9 && n == 59 && status != http.StatusTooManyRequests {
					return fmt.Sprintf("status %d for the 600th stage of a budget of 500", status)
				}
			}
			return ""
		}},
		{"queue large requests", func(a *arena, i int) string {
			status, _ := a.submit(fmt.Sprintf(`{"id":"large-%d","selectors":["nowhere"],"steps":[{"data":{"files":[{"path":"x","data":"%s"}]}}]}`, i, strings.Repeat("n", 8_000_000)))
			if i == 9 {
				return refused(status, "")
			}
			return ""
		}},
	}
}

// networkAttacks use the protocols below the API.
func networkAttacks() []attackKind {
	return []attackKind{
		{"a log key that is too long", func(a *arena, i int) string {
			return refused(a.do(hostile, "POST", "/stream?accountID=hostile&key="+strings.Repeat("k", 5_000+i), ""))
		}},
		{"a compressed body", func(a *arena, i int) string {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = io.Copy(z, io.LimitReader(zeros{}, 100<<20))
			_ = z.Close()
			return refused(a.call(a.tokens[hostile], "POST", "/api/stages?accountId=hostile", &b, http.Header{"Content-Encoding": {"gzip"}}))
		}},
		{"a web page reads the delegate's metrics", func(a *arena, i int) string {
			return refused(a.call("", "GET", "http://"+a.metrics[preyAccount]+"/metrics", nil, http.Header{"Host": {"attacker.example"}, "Origin": {"http://attacker.example"}}))
		}},
		{"a web page pauses the delegate", func(a *arena, i int) string {
			h := http.Header{"Origin": {"http://attacker.example"}}
			return refused(a.call("", "POST", "http://"+a.metrics[preyAccount]+[]string{"/pause", "/resume"}[i%2], nil, h))
		}},
		{"a process pauses the delegate", func(a *arena, i int) string {
			return refused(a.call("guessed", "POST", "http://"+a.metrics[preyAccount]+[]string{"/pause", "/resume"}[i%2], nil, nil))
		}},
		{"more event streams than the budget", func(a *arena, i int) string {
			status := 0
			for range 3 {
				status = a.followEvents()
			}
			if i >= 7 && status != http.StatusTooManyRequests {
				return fmt.Sprintf("status %d for stream %d of a budget of 20", status, 3*(i+1))
			}
			return ""
		}},
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
