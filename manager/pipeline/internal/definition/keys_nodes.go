package definition

// nodeObjects are the objects of steps and groups, and those that stages, groups and steps
// share.
func nodeObjects() []object {
	return []object{
		{name: "step item", one: []string{"step", "stepGroup", "parallel"}, keys: []key{
			nested("step", "step", "A step."),
			nested("stepGroup", "group", "Steps with a common condition, strategy or failure strategy."),
			items("parallel", "step item", "Steps and groups that run at the same time."),
			ignored("contextType", "it belongs to the editor of Harness"),
			refused("insert", "insert blocks belong to templates with extension points: write the steps instead"),
		}},
		{name: "step", inner: "spec", keys: []key{
			text("name", "The name for people."),
			needed(fixed(text("identifier", "The name in expressions and paths."))),
			fixed(text("type", "The type of the step.")),
			text("description", "Text for people."),
			timeout("The longest time of the step; 10h by default."),
			nested("when", "step when", "When the step runs."),
			nested("strategy", "strategy", "Repeats the step."),
			items("failureStrategies", "failure strategy", "What happens when the step fails."),
			nested("template", "template reference", "The template with the content of the step."),
			spec("step types", "The settings of the step."),
			ignored("enforce", "there are no policies"),
			ignored("delegateSelectors", "all steps of a stage run at the delegate of the stage"),
		}},
		{name: "group", inner: "", keys: []key{
			text("name", "The name for people."),
			needed(fixed(text("identifier", "The name in expressions and paths."))),
			text("description", "Text for people."),
			items("steps", "step item", "The steps of the group."),
			nested("when", "step when", "When the group runs."),
			nested("strategy", "strategy", "Repeats the group."),
			items("failureStrategies", "failure strategy", "What happens when a step of the group fails."),
			items("variables", "variable", "Values that expressions take as stepGroup.variables.NAME."),
			nested("template", "template reference", "The template with the content of the group."),
			list("sharedPaths", "Directories that all steps of the stage share, in addition to the paths of the stage."),
			ignored("delegateSelectors", "all steps of a stage run at the delegate of the stage"),
			timeout("The longest time of the group."),
			refused("stepGroupInfra", "a group runs where its stage runs: move its steps to a stage with this infrastructure"),
			ignored("enforce", "there are no policies"),
		}},
		{name: "step when", keys: []key{
			needed(fixed(words("stageStatus", "The state of the stage so far.", "Success", "Failure", "All"))),
			text("condition", "An expression that must be true as well."),
			refused("pipelineStatus", "a step takes stageStatus; pipelineStatus is for stages"),
		}},
		{name: "strategy", one: []string{"matrix", "parallelism", "repeat"}, keys: []key{
			{name: "matrix", shape: anyShape, about: "A child for each combination of the axes' values, without those of exclude."},
			number("parallelism", "The number of children that run at the same time."),
			nested("repeat", "repeat", "A child for each item or count."),
			number("maxConcurrency", "The most children at the same time."),
			text("when", "A condition: if it is false there are no children."),
			fixed(words("onFailure", "What a failed child does to the others.", "ignore", "abort")),
		}},
		{name: "repeat", one: []string{"times", "items"}, keys: []key{
			number("times", "The number of children."),
			anything("items", "A list, or an expression of a list."),
			number("maxConcurrency", "The most children at the same time."),
			number("start", "The first item, from 0."),
			number("end", "The item after the last one."),
			fixed(words("unit", "The unit of start and end.", "Percentage", "Count")),
			number("partitionSize", "The number of items of one child."),
			text("nodeName", "The names of the children."),
		}},
		{name: "failure strategy", keys: []key{
			needed(nested("onFailure", "on failure", "The kinds of failure and the action.")),
		}},
		{name: "on failure", keys: []key{
			needed(key{name: "errors", shape: listShape, fixed: true, words: failureKinds(), about: "The kinds of failure."}),
			needed(nested("action", "action", "What is done.")),
		}},
		{name: "action", inner: "spec", keys: []key{
			needed(fixed(words("type", "The action.", "Ignore", "Retry", "MarkAsSuccess", "MarkAsFailure", "Abort", "StageRollback",
				"StepGroupRollback", "PipelineRollback", "ManualIntervention", "ProceedWithDefaultValues", "RetryStepGroup"))),
			spec("action types", "The settings of the action."),
		}},
		{name: "retry", keys: []key{
			needed(number("retryCount", "The number of attempts after the first one.")),
			{name: "retryIntervals", shape: listShape, about: "The waits before the attempts; the last one repeats."},
			nested("onRetryFailure", "then", "What is done when the last attempt fails."),
			text("condition", "An expression; if it is false there is no attempt."),
			ignoredUnless("failAll", "its meaning is not documented: each child of a strategy is retried for itself", "false"),
		}},
		{name: "then", keys: []key{
			needed(nested("action", "action", "What is done.")),
		}},
		{name: "intervention", keys: []key{
			needed(timeout("The longest wait for an answer.")),
			needed(nested("onTimeout", "then", "What is done without an answer.")),
			ignored("availableActions", "all answers are offered"),
		}},
	}
}

// failureKinds are the kinds of failure that a failure strategy may name.
func failureKinds() []string {
	return []string{"AllErrors", "Unknown", "Authentication", "Authorization", "Connectivity", "Timeout", "Verification",
		"DelegateProvisioning", "PolicyEvaluationFailure", "InputTimeoutError", "ApprovalRejection", "DelegateRestart",
		"UserMarkedFailure", "InfrastructureFailure", "PluginImageFailure", "ResourceLimitsFailure", "ConfigurationFailure",
		"RetryableTransientFailure"}
}
