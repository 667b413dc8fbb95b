"""Evaluation of a state: the statistics query, global metrics, per-client metrics, and fairness.

Modules:

    calibration     The query for the statistics of static batch normalisation: one pass over the data, after training
    class_results   Results of each class on the test set: confusion matrix, recall and precision
    client_metrics  Predictions of personalised models, with units that stay with the clients
    evaluator       Evaluation of a run's state
    fairness        Fairness of a model over the clients
    global_metrics  Metrics of a model on a split under all labels
    local_metrics   Metrics of the clients' test examples, each under the labels of its client
    predictor       The prediction model of a level
    similarity      Similarity of the representations of two models, unit by unit: linear CKA and SVCCA
"""
