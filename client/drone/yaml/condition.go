package yaml

import (
	"fmt"
	"regexp"
)

// condition is a list of patterns of "when". Without patterns it is met by every value.
type condition struct {
	include, exclude []string
}

func (c condition) empty() bool { return len(c.include)+len(c.exclude) == 0 }

// met reports whether a value matches a pattern to include, if there is one, and matches no
// pattern to exclude.
func (c condition) met(value string) bool {
	if matchesAny(c.exclude, value) {
		return false
	}
	return len(c.include) == 0 || matchesAny(c.include, value)
}

// matchesAny ignores invalid patterns, as Drone does. Reading the file has refused most of them.
func matchesAny(patterns []string, value string) bool {
	for _, pattern := range patterns {
		if re, err := pathPattern(pattern); err == nil && re.MatchString(value) {
			return true
		}
	}
	return false
}

// maxPattern is the length of the longest pattern of a condition, in bytes.
const maxPattern = 1024

func pathPatternText(pattern string) (string, error) {
	if len(pattern) > maxPattern {
		return "", fmt.Errorf("a pattern has %d bytes: at most %d are possible", len(pattern), maxPattern)
	}
	return glob(pattern, true, false)
}

func pathPattern(pattern string) (*regexp.Regexp, error) {
	text, err := pathPatternText(pattern)
	if err != nil {
		return nil, err
	}
	return regexp.Compile(`(?s)\A(?:` + text + `)\z`)
}

// conditions are the members of "when" by name.
type conditions map[string]condition

// conditionVariables has the variable that each condition is matched against. The server
// matches the paths, and the status is known when the step may start.
var conditionVariables = map[string]string{
	"action": "DRONE_BUILD_ACTION", "branch": "DRONE_BRANCH", "cron": "DRONE_CRON", "event": "DRONE_BUILD_EVENT",
	"instance": "DRONE_SYSTEM_HOST", "ref": "DRONE_COMMIT_REF", "repo": "DRONE_REPO", "target": "DRONE_DEPLOY_TO",
	"paths": "", "status": "",
}

// met reports whether all conditions but the status are met.
func (c conditions) met(variables map[string]string) bool {
	for name, one := range c {
		if variable := conditionVariables[name]; variable != "" && !one.met(variables[variable]) {
			return false
		}
	}
	return true
}

// onStatus reports whether a step runs while no step has failed, and after one has failed.
func (c conditions) onStatus() (success, failure bool) {
	status := c["status"]
	if status.empty() || !status.met("failure") {
		// A step that does not run after failures runs on success, even if its status names
		// neither.
		return true, false
	}
	return status.met("success"), true
}

func readConditions(v value) (conditions, error) {
	c := conditions{}
	fields := map[string]func(value) error{}
	for name := range conditionVariables {
		fields[name] = func(v value) (err error) {
			c[name], err = readCondition(v)
			return err
		}
	}
	return c, v.read(fields)
}

func readCondition(v value) (c condition, err error) {
	if v.isMap() {
		err = v.read(map[string]func(value) error{
			"include": func(v value) (err error) { c.include, err = readPatterns(v); return err },
			"exclude": func(v value) (err error) { c.exclude, err = readPatterns(v); return err },
		})
		return c, err
	}
	c.include, err = readPatterns(v)
	return c, err
}

func readPatterns(v value) ([]string, error) {
	if v.isScalar() {
		if v.isNull() {
			return nil, nil
		}
		text, err := v.text()
		if err == nil {
			err = v.wrap(checkPattern(text))
		}
		return []string{text}, err
	}
	return readList(v, func(v value) (string, error) {
		text, err := v.text()
		if err == nil {
			err = v.wrap(checkPattern(text))
		}
		return text, err
	})
}

// checkPattern does not compile the pattern: a file may have many.
func checkPattern(pattern string) error {
	_, err := pathPatternText(pattern)
	return err
}
