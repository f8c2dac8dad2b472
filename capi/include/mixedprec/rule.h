/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Rules of the optimizer: what moves the weights, which states it keeps, which hyperparameters it reads. A program, or a binding,
 * learns them here by name and need not repeat them. Rules are numbered from 0; a number and a name never change. All strings are
 * static. */
#ifndef MIXEDPREC_RULE_H
#define MIXEDPREC_RULE_H

#include "status.h"

/* mp_param_group_desc.rule, mp_step_args.rule and wherever a rule is meant */
#define MP_RULE_ADAMW 0 /* exp_avg, exp_avg_sq; weight decay decoupled */
#define MP_RULE_ADAM 1 /* the same states; weight_decay * p is added to the gradient (L2) instead */
/* exp_avg; no bias correction; no eps, which is 0 or its default, as a double or a float. Chen et al., algorithm 2:
 *   u  = -lr weight_decay p - lr sign(beta1 m + (1 - beta1) g);  m' = beta2 m + (1 - beta2) g */
#define MP_RULE_LION 2

/* The states that rules keep, by number: 0, 1, and so on. mp_rule_state_name has their names. */
#define MP_STATE_EXP_AVG 0    /* first moment: a mean of gradients */
#define MP_STATE_EXP_AVG_SQ 1 /* second moment: a mean of their squares */

#define MP_MAX_RULE_STATES 4 /* room for the states of one rule, in its order */
#define MP_MAX_STATES 16     /* room for all states, by number */

/* mp_param_group_desc.flags and mp_step_args.flags */
#define MP_RULE_MAXIMIZE 1024u           /* the gradient's sign is turned */
#define MP_RULE_NO_BIAS_CORRECTION 2048u /* of rules that have bias corrections: both are 1 */

/** A hyperparameter by its name. */
typedef struct mp_hyper {
    const char* name; /* of mp_rule_get_hyper; one that the rule reads, given once */
    double value;     /* taken literally, 0 too */
} mp_hyper;

#define MP_HYPER_INIT                                                                              \
    { NULL, 0.0 }

typedef struct mp_rule_info {
    uint32_t struct_size;  /* sizeof(mp_rule_info), set by the caller */
    int32_t corrects_bias; /* 1: MP_RULE_NO_BIAS_CORRECTION has a meaning */
    const char* name;      /* "adamw" */
    int32_t state_count;   /* states it keeps for each parameter */
    int32_t hyper_count;   /* hyperparameters it reads */
} mp_rule_info;

#define MP_RULE_INFO_INIT                                                                          \
    { sizeof(mp_rule_info), 0, NULL, 0, 0 }

/** A state: as many numbers as the parameter has, all 0 at first. */
typedef struct mp_rule_state {
    uint32_t struct_size; /* sizeof(mp_rule_state), set by the caller */
    int32_t is_signed;    /* 1: its numbers may be negative */
    const char* name; /* "exp_avg": in mp_optimizer_get_state, checkpoints and keys of recipes */
    int32_t number;   /* MP_STATE_* */
    int32_t reserved; /* 0 */
} mp_rule_state;

#define MP_RULE_STATE_INIT                                                                         \
    { sizeof(mp_rule_state), 0, NULL, 0, 0 }

typedef struct mp_rule_hyper {
    uint32_t struct_size; /* sizeof(mp_rule_hyper), set by the caller */
    int32_t reserved;     /* 0 */
    const char*
        name; /* "lr": as in mp_hyper; five are members of mp_param_group_desc and mp_step_args too */
    double usual; /* what 0 in such a member stands for, but in mp_step_args.lr */
    double limit; /* a value is at least 0 and below this */
} mp_rule_hyper;

#define MP_RULE_HYPER_INIT                                                                         \
    { sizeof(mp_rule_hyper), 0, NULL, 0.0, 0.0 }

MP_BEGIN_DECLS

/** How many rules there are.
 * @param[out] count  the number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_rule_get_count(int32_t* count);

/** The number of a rule.
 * @param[in]  name  "adamw", say
 * @param[out] rule  MP_RULE_*
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_UNKNOWN_NAME, whose message has all names
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_rule_get_number(const char* name, int32_t* rule);

/** What a rule is.
 * @param[in]     rule  MP_RULE_*
 * @param[in,out] info  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_rule_get_info(int32_t rule, mp_rule_info* info);

/** One of a rule's states.
 * @param[in]     rule   MP_RULE_*
 * @param[in]     index  0 .. mp_rule_info.state_count - 1
 * @param[in,out] state  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_rule_get_state(int32_t rule, int32_t index, mp_rule_state* state);

/** One of the hyperparameters that a rule reads.
 * @param[in]     rule   MP_RULE_*
 * @param[in]     index  0 .. mp_rule_info.hyper_count - 1
 * @param[in,out] hyper  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_rule_get_hyper(int32_t rule, int32_t index, mp_rule_hyper* hyper);

/** The name of a state.
 * @param[in] state  MP_STATE_*
 * @returns a static string, "exp_avg"; NULL for any other number
 * @threads A
 * @since 0.2 */
MP_API const char* mp_rule_state_name(int32_t state);

MP_END_DECLS

#endif /* MIXEDPREC_RULE_H */
