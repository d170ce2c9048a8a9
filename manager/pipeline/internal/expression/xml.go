package expression

import "errors"

var errXML = errors.New("the function is not available yet")

func xmlSelect(*evaluation, []any) (any, error) { return nil, errXML }
